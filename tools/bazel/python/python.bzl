def _impl(ctx):  # @system_python: toolchain, headers and pybind11
    python = ctx.os.environ.get("MEGALITH_PYTHON", "/usr/bin/python3")
    include = ctx.execute([python, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"]).stdout.strip()
    for f in [include + "/Python.h", "/usr/include/pybind11/pybind11.h"]:
        if not ctx.path(f).exists:
            fail("%s is missing: apt-get install python3-dev pybind11-dev" % f)
    ctx.symlink(include, "python")
    ctx.symlink("/usr/include/pybind11", "pybind/pybind11")
    ctx.file("BUILD", """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")
package(default_visibility = ["//visibility:public"])
cc_library(name = "pybind11", hdrs = ["python", "pybind/pybind11"], includes = ["python", "pybind"])
py_runtime(name = "rt", interpreter_path = "{0}", python_version = "PY3", stub_shebang = "#!{0}")
py_runtime_pair(name = "rts", py3_runtime = ":rt")
toolchain(name = "toolchain", toolchain = ":rts", toolchain_type = "@bazel_tools//tools/python:toolchain_type")
""".format(python))

python_configure = repository_rule(implementation = _impl, environ = ["MEGALITH_PYTHON"], local = True)

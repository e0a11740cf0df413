def lit_suite(name, srcs, tools, cfg = "lit.cfg.py", **kwargs):
    native.sh_test(
        name = name, srcs = ["//tools/bazel:lit_test.sh"],
        args = ["$(rootpath @llvm//:bin/lit)", "$(rootpath %s)" % cfg, str(len(tools))] + ["$(rootpath %s)" % f for f in tools + srcs],
        data = srcs + tools + [cfg] + ["@llvm//:bin/" + t for t in ["lit", "FileCheck", "not"]], **kwargs
    )

def pybind_extension(name, deps = [], **kwargs):  # NAME.so, module NAME
    native.cc_binary(name = name + ".so", linkshared = True, linkstatic = True, copts = ["-fvisibility=hidden"], deps = deps + ["@system_python//:pybind11"], **kwargs)

def pytest_test(name, srcs, main = "//tools/bazel:pytest_main.py", **kwargs):
    native.py_test(name = name, srcs = srcs + [main], main = main, args = ["$(rootpath %s)" % s for s in srcs], **kwargs)

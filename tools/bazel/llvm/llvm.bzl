def _impl(ctx):  # @llvm: the installed LLVM/MLIR 22
    config = ctx.os.environ.get("LLVM_CONFIG", "/usr/lib/llvm-22/bin/llvm-config")
    need = "apt-get install llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools, or set LLVM_CONFIG"
    if not ctx.path(config).exists:
        fail("%s is missing: %s" % (config, need))
    version, lib, bin, include = ctx.execute([config, "--version", "--libdir", "--bindir", "--includedir"]).stdout.strip().split("\n")
    if not version.startswith("22."):
        fail("LLVM 22 is needed, %s is %s: %s" % (config, version, need))
    for f in [lib + "/libMLIR.so"] + [bin + "/" + t for t in ["mlir-tblgen", "FileCheck", "not", "lit"]]:
        if not ctx.path(f).exists:
            fail("%s is missing: %s" % (f, need))
        if f.startswith(bin):
            ctx.symlink(f, "bin/" + f[len(bin) + 1:])
    for d in ["llvm", "llvm-c", "mlir", "mlir-c"]:
        ctx.symlink(include + "/" + d, "include/" + d)
    # What a program may need of LLVM and MLIR; the linker takes only what it does need.
    static = [
        "-l:" + f.basename
        for f in ctx.path(lib).readdir()
        if f.basename.endswith(".a") and (f.basename.startswith("libMLIR") or f.basename.startswith("libLLVM")) and
           not [word for word in ["Test", "CAPI", "BOLT", "TableGen", "PDLL"] if word in f.basename]
    ]
    ctx.template("BUILD", Label("//tools/bazel/llvm:llvm.BUILD"), {
        "%{LIB}": lib,
        "%{STATIC}": "\", \"".join(sorted(static)),
        "%{VERSION}": version.replace(".", "_"),
    })

llvm_configure = repository_rule(implementation = _impl, environ = ["LLVM_CONFIG"], local = True)

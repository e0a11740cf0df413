TdInfo = provider(fields = ["srcs", "includes"])

def _td(files, includes, deps):
    return TdInfo(
        srcs = depset(files, transitive = [d[TdInfo].srcs for d in deps]),
        includes = depset(includes, transitive = [d[TdInfo].includes for d in deps]),
    )

def _td_library_impl(ctx):
    root = ctx.label.workspace_root
    return [_td(ctx.files.srcs, [root + "/" + i if root else i for i in ctx.attr.includes], ctx.attr.deps)]

_DEPS = attr.label_list(providers = [TdInfo])
td_library = rule(implementation = _td_library_impl, attrs = {
    "srcs": attr.label_list(allow_files = True),  # .td files, or a folder of them
    "includes": attr.string_list(),  # from the repository's root
    "deps": _DEPS,
})

def _gentbl_impl(ctx):
    td = _td([ctx.file.td_file], ["."], ctx.attr.deps)
    for i, out in enumerate(ctx.outputs.outs):
        args = ctx.actions.args()
        args.add_all(ctx.attr.opts[i].split(" "))
        args.add_all(td.includes, before_each = "-I")
        args.add_all([ctx.file.td_file, "-o", out])
        ctx.actions.run(executable = ctx.executable._tblgen, arguments = [args], inputs = td.srcs, outputs = [out], mnemonic = "MlirTblgen")
    return [DefaultInfo(files = depset(ctx.outputs.outs))]

_gentbl = rule(implementation = _gentbl_impl, attrs = {
    "td_file": attr.label(allow_single_file = [".td"], mandatory = True),
    "deps": _DEPS,
    "outs": attr.output_list(mandatory = True),
    "opts": attr.string_list(mandatory = True),
    "_tblgen": attr.label(default = "@llvm//:bin/mlir-tblgen", allow_single_file = True, executable = True, cfg = "exec"),
})

def gentbl_cc_library(name, td_file, tbl_outs, deps = [], **kwargs):
    """tbl_outs: [(options, file), ...]; C++ includes them as "package/file"."""
    _gentbl(name = name + "_gen", td_file = td_file, deps = deps, outs = [o for _, o in tbl_outs], opts = [f for f, _ in tbl_outs])
    native.cc_library(name = name, textual_hdrs = [":" + name + "_gen"], **kwargs)

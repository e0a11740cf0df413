"""Writes a C++ file that holds text files as one table: embed.py HEADER FUNCTION OUT FILE...

HEADER declares FUNCTION, `const std::map<llvm::StringRef, llvm::StringRef> &()` in a namespace
within megalith: "runtime::deviceFillHeaders".
"""
import sys

header, function, out, files = sys.argv[1], sys.argv[2], sys.argv[3], sorted(sys.argv[4:])
with open(out, "w") as cpp:
    cpp.write('#include "%s"\n\nnamespace megalith {\n\n' % header)
    cpp.write("const std::map<llvm::StringRef, llvm::StringRef> &%s() {\n" % function)
    cpp.write("  static const std::map<llvm::StringRef, llvm::StringRef> headers = {\n")
    for name in files:
        with open(name) as file:
            text = file.read()
        assert ')embed"' not in text, name
        # A file's name is its path from the repository's root, also where Bazel has built it.
        name = name.split("/bin/")[-1] if name.startswith("bazel-out/") else name
        cpp.write('{"%s",\nR"embed(%s)embed"},\n' % (name, text))
    cpp.write("  };\n  return headers;\n}\n\n} // namespace megalith\n")

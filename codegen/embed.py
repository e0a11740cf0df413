"""Writes a C++ file that holds text files as one table: embed.py OUT FILE..."""
import sys

out, files = sys.argv[1], sorted(sys.argv[2:])
with open(out, "w") as cpp:
    cpp.write('#include "codegen/headers.h"\n\nnamespace megalith {\n\n')
    cpp.write("const std::map<llvm::StringRef, llvm::StringRef> &deviceHeaders() {\n")
    cpp.write("  static const std::map<llvm::StringRef, llvm::StringRef> headers = {\n")
    for name in files:
        with open(name) as file:
            text = file.read()
        assert ')embed"' not in text, name
        # A file's name is its path from the repository's root, also where Bazel has built it.
        name = name.split("/bin/")[-1] if name.startswith("bazel-out/") else name
        cpp.write('{"%s",\nR"embed(%s)embed"},\n' % (name, text))
    cpp.write("  };\n  return headers;\n}\n\n} // namespace megalith\n")

import os
import lit.formats

config.name = "passes-simulate"
config.suffixes = [".mlir"]
config.test_format = lit.formats.ShTest(execute_external=False)
config.test_exec_root = os.environ["MEGALITH_LIT_OUT"]
config.environment["PATH"] = os.environ["MEGALITH_LIT_PATH"]

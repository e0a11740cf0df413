import os, sys, pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", "-v", "--junitxml=" + os.environ["XML_OUTPUT_FILE"]] + sys.argv[1:]))

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <unistd.h>
int main(
    int argc,
    char **argv) { // 2.x has one reporter: JUnit for the counts; if that failed, again for the log
  const char *xml = getenv("XML_OUTPUT_FILE"), *args[] = {argv[0], "-r", "junit", "-o", xml};
  if (argc > 1 || !xml)
    return Catch::Session().run(argc, argv);
  return Catch::Session().run(5, args) &&
         execl("/proc/self/exe", argv[0], "-r", "console", (char *)nullptr);
}

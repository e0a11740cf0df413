// Whose code is it: lines of an emitted source by role and stage.

#include "tools/explain/Code.h"

#include <catch2/catch.hpp>

using namespace megalith;

TEST_CASE("lines are added up by role and stage") {
  const char *source = "namespace megalith::layer {\n"               // 1
                       "MEGALITH_DEVICE void producer(Cta &cta) {\n" // 2
                       "  // o_proj\n"                               // 3
                       "  copy_piece(cta);\n"                        // 4
                       "  // router\n"                               // 5
                       "    // not a stage\n"                        // 6
                       "  copy_piece(cta);\n"                        // 7
                       "}\n"                                         // 8
                       "MEGALITH_DEVICE void consumer(Cta &cta) {\n" // 9
                       "  // router\n"                               // 10
                       "  gemv(cta);\n"                              // 11
                       "}\n"                                         // 12
                       "MEGALITH_KERNEL(layer) {\n"                  // 13
                       "  // no stage\n"                             // 14
                       "  Cta cta(args);\n";                         // 15
  const std::vector<runtime::CodeLine> lines = {{0, 16, 15},    {16, 32, 4},  {48, 64, 7},
                                                {112, 128, 11}, {240, 16, 4}, {256, 512, 0}};
  CHECK(explain::codeFacts(source, lines) ==
        std::vector<explain::CodeFacts>{{"", "", 16},
                                        {"called", "", 512},
                                        {"producer", "o_proj", 48},
                                        {"producer", "router", 64},
                                        {"consumer", "router", 128}});
}

TEST_CASE("no lines, no facts") {
  CHECK(explain::codeFacts("", {}).empty());
}

//===- Module.cpp - megalith._native ----------------------------------------===//
//
// Binds Program.h. The package's Python files hold what users see, its documentation and types;
// here is only conversion. Every call that works releases the GIL.
//
//===----------------------------------------------------------------------===//

#include "tools/megalith/Failure.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/Quantization.h"
#include "tools/python/native/Program.h"
#include "tools/python/native/Results.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace megalith::python {

namespace {

/// An error on its way to Python, where it becomes a class of megalith.errors.
struct Raised {
  cli::Exit code;
  std::string text;
  Messages messages;
};

[[noreturn]] void raise(llvm::Error error, Messages messages = {}) {
  Raised raised{cli::Exit::Run, "", std::move(messages)};
  llvm::handleAllErrors(
      std::move(error),
      [&](const cli::Failure &failure) {
        raised.code = failure.code;
        raised.text = failure.message();
      },
      [&](const llvm::ErrorInfoBase &other) { raised.text = other.message(); });
  throw raised;
}

template <class T> T take(llvm::Expected<T> result, Messages messages = {}) {
  if (!result)
    raise(result.takeError(), std::move(messages));
  return std::move(*result);
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown)
      std::rethrow_exception(thrown);
  } catch (const Raised &raised) {
    const py::object error =
        py::module_::import("megalith.errors")
            .attr("from_native")(int(raised.code), raised.text, raised.messages);
    PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  }
}

py::dict toDict(const Texts &texts) {
  py::dict dict;
  for (const auto &[name, text] : texts)
    dict[py::str(name)] = text;
  return dict;
}

/// Calls `callback` (or nothing, if None), and lets Ctrl-C end the work.
cli::Progress progressOf(py::object callback) {
  // Shared, so that copies of the function need no GIL.
  auto shared = std::make_shared<py::object>(std::move(callback));
  return [shared](llvm::StringRef work) {
    py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0)
      throw py::error_already_set();
    if (!shared->is_none())
      (*shared)(work.str());
  };
}

std::unique_ptr<Program> compile(const std::string &config, const std::string &source,
                                 const std::string &target, int64_t rows, int64_t sms, bool isStep,
                                 int64_t tp, const models::Quantization &quantization,
                                 py::object callback) {
  cli::CompileRequest request{.config = config,
                              .source = source,
                              .quantization = quantization,
                              .target = target,
                              .rows = rows,
                              .sms = sms,
                              .launch =
                                  isStep ? runtime::LaunchMode::Step : runtime::LaunchMode::Fused,
                              .tp = tp};
  // The program keeps its progress function, which must not hold Python objects for ever.
  auto progress = std::make_shared<cli::Progress>(progressOf(std::move(callback)));
  llvm::Expected<std::unique_ptr<Program>> program = [&] {
    py::gil_scoped_release release;
    return Program::create(std::move(request), [weak = std::weak_ptr(progress)](auto work) {
      if (auto alive = weak.lock())
        (*alive)(work);
    });
  }();
  return take(std::move(program));
}

using SequenceTuple =
    std::tuple<int64_t, int64_t, int64_t, int64_t, std::vector<int32_t>>; // as in check::Sequence

py::dict run(Program &program, const std::string &backend,
             const std::vector<SequenceTuple> &sequences, int64_t steps, uint32_t seed,
             uint32_t weightSeed, std::optional<int64_t> layer, uint64_t scheduleSeed,
             const std::string &fault) {
  RunRequest request;
  request.backend = backend;
  request.workload.seed = seed;
  request.workload.steps = steps;
  for (const auto &[start, rows, content, firstRow, tokens] : sequences)
    request.workload.sequences.push_back({start, rows, content, firstRow, tokens});
  request.options.weightSeed = weightSeed;
  request.options.layer = layer;
  request.fault = fault;
  request.scheduleSeed = scheduleSeed;
  llvm::Expected<RunResult> result = [&] {
    py::gil_scoped_release release;
    return program.run(std::move(request));
  }();
  return toDict(take(std::move(result)));
}

} // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "What megalith's Python files are made on; see there.";
  py::register_exception_translator(translate);

  py::class_<Program>(module, "Program")
      .def("verify",
           [](Program &program, int cases) {
             Messages messages;
             llvm::Error error = [&] {
               py::gil_scoped_release release;
               return program.verify(cases, messages);
             }();
             if (error)
               raise(std::move(error), std::move(messages));
           })
      .def("ir", [](const Program &program) { return toDict(program.ir()); })
      .def("sources",
           [](const Program &program, bool digests) {
             py::gil_scoped_release release;
             Texts texts = take(program.sources(digests));
             py::gil_scoped_acquire acquire;
             return toDict(texts);
           })
      .def(
          "plan", [](const Program &program) { return take(program.plan()); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "save",
          [](Program &program, const std::string &folder, bool cubins, bool ir) {
            return take(program.save(folder, cubins, ir));
          },
          py::call_guard<py::gil_scoped_release>())
      .def("run", &run);

  module.def("compile", &compile);
  // (text, file) of a config, or of that in a checkpoint's folder.
  module.def("read_config", [](const std::string &given) {
    cli::ConfigText config = take(cli::readConfig(given, "a Hugging Face config.json"));
    return std::pair(config.text, config.file);
  });
  py::class_<models::Quantization>(module, "Quantization");
  module.def("read_quantization", [](const std::string &config, const std::string &quant,
                                     const std::string &act, const std::string &kv) {
    return take(cli::readQuantization(config, quant, act, kv));
  });
  module.def("verify_text", [](const std::string &text, const std::string &name, int cases) {
    Messages messages;
    llvm::Expected<int64_t> kernels = [&] {
      py::gil_scoped_release release;
      return verifyText(text, name, cases, messages);
    }();
    return take(std::move(kernels), std::move(messages));
  });
  module.def("emit_text", [](const std::string &text, const std::string &name, bool digests) {
    Messages messages;
    llvm::Expected<Texts> texts = [&] {
      py::gil_scoped_release release;
      return emitText(text, name, digests, messages);
    }();
    return toDict(take(std::move(texts), std::move(messages)));
  });
}

} // namespace megalith::python

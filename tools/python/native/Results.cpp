//===- Results.cpp - a run's results as NumPy arrays ------------------------===//

#include "tools/python/native/Results.h"

#include <pybind11/numpy.h>

#include <cmath>
#include <functional>

namespace py = pybind11;

namespace megalith::python {

using check::LaunchReport;
using check::LaunchValues;
using reference::Matrix;

namespace {

/// Matrices of one shape, of all steps, as float32 [steps, matrices a step, rows, columns]. Values
/// are those of bf16 or fp32 numbers.
py::array stack(const std::vector<const Matrix *> &matrices, py::ssize_t steps) {
  const auto perStep = py::ssize_t(matrices.size()) / steps;
  const Matrix &first = *matrices.front();
  py::array_t<float> array(std::vector<py::ssize_t>{steps, perStep, first.rows, first.columns});
  float *at = array.mutable_data();
  for (const Matrix *matrix : matrices)
    at = std::copy(matrix->values.begin(), matrix->values.end(), at);
  return array;
}

/// One number of each row of each step, [steps, rows].
template <class T, class Get> py::array ofRows(const RunResult &result, Get get) {
  const size_t rows = result.steps.front().rows.size();
  py::array_t<T> array({result.steps.size(), rows});
  T *at = array.mutable_data();
  for (const reference::Step &step : result.steps)
    for (const reference::Row &row : step.rows)
      *at++ = T(get(row));
  return array;
}

/// One number of each launch of each step, [steps, launches].
template <class T, class Get> py::array ofLaunches(const RunResult &result, Get get) {
  const size_t launches = result.report.launches.size() / result.steps.size();
  py::array_t<T> array({result.steps.size(), launches});
  T *at = array.mutable_data();
  for (const LaunchReport &launch : result.report.launches)
    *at++ = T(get(launch));
  return array;
}

/// Router logits, and what top-k makes of them, of the launches that route.
void addRouting(py::dict &dict, const RunResult &result, py::ssize_t steps) {
  std::vector<const Matrix *> logits, weights;
  for (const LaunchValues &values : result.values)
    if (values.routerLogits.rows) {
      logits.push_back(&values.routerLogits);
      weights.push_back(&values.routing.weights);
    }
  if (logits.empty())
    return;
  dict["router_logits"] = stack(logits, steps);
  dict["expert_weights"] = stack(weights, steps);
  const auto perStep = py::ssize_t(logits.size()) / steps;
  py::array_t<int32_t> ids(
      std::vector<py::ssize_t>{steps, perStep, weights.front()->rows, weights.front()->columns});
  int32_t *at = ids.mutable_data();
  for (const LaunchValues &values : result.values)
    at = std::copy(values.routing.ids.begin(), values.routing.ids.end(), at);
  dict["expert_ids"] = std::move(ids);
}

void addErrors(py::dict &dict, const RunResult &result) {
  py::dict errors;
  const std::pair<const char *, std::optional<double> LaunchReport::*> kinds[] = {
      {"residual", &LaunchReport::residual},
      {"router", &LaunchReport::router},
      {"kv", &LaunchReport::kv},
      {"qkv", &LaunchReport::qkv},
      {"head", &LaunchReport::head},
      {"whole", &LaunchReport::whole}};
  for (const auto &[name, error] : kinds)
    errors[name] = ofLaunches<double>(result, [error = error](const LaunchReport &launch) {
      return (launch.*error).value_or(std::nan(""));
    });
  dict["errors"] = std::move(errors);
  dict["near_ties"] =
      ofLaunches<int64_t>(result, [](const LaunchReport &launch) { return launch.nearTies; });
  dict["wrong_rows"] =
      ofLaunches<int64_t>(result, [](const LaunchReport &launch) { return launch.wrongRows; });
}

} // namespace

py::dict toDict(const RunResult &result) {
  const auto steps = py::ssize_t(result.steps.size());
  py::dict dict;
  dict["tokens"] = ofRows<int32_t>(result, [](const reference::Row &row) { return row.token; });
  dict["positions"] =
      ofRows<int64_t>(result, [](const reference::Row &row) { return row.position; });
  dict["sequences"] = ofRows<int32_t>(
      result, [](const reference::Row &row) { return row.live ? row.sequence : -1; });
  dict["live"] = ofRows<bool>(result, [](const reference::Row &row) { return row.live; });

  std::vector<const Matrix *> residuals, projections, logits;
  for (size_t i = 0; i < result.values.size(); ++i) {
    residuals.push_back(&result.values[i].residual);
    (result.report.launches[i].head ? logits : projections).push_back(&result.values[i].result);
  }
  dict["layers"] = ofLaunches<int64_t>(
      result, [](const LaunchReport &launch) { return launch.layer; })[py::int_(0)];
  dict["residual"] = stack(residuals, steps);
  if (!projections.empty())
    dict["qkv"] = stack(projections, steps);
  if (!logits.empty())
    dict["logits"] = stack(logits, steps)[py::make_tuple(py::slice(0, steps, 1), 0)];
  addRouting(dict, result, steps);
  addErrors(dict, result);
  dict["passes"] = result.report.passes();
  dict["difference"] = result.report.largest().difference;
  dict["table"] = result.report.table();
  return dict;
}

} // namespace megalith::python

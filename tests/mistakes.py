"""Compiles likely mistakes and checks the compilers' error messages.

mistakes.py BUILD_FOLDER COMPILER...

A compiler that is not installed is skipped. All mistakes are compiled in one file,
since parsing LibTorch takes most of the time; #line gives each mistake a file name of
its own, which appears in its errors.
"""
import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

NEAR = 24  # maximum distance in lines of output between an error and its words
HEADERS = """
#include <tern/callbacks/monitor.h>
#include <tern/callbacks/schedules/one_cycle.h>
#include <tern/learner/learner.h>
#include <tern/learner/metrics/metrics.h>

extern tern::DataBunch data;
extern tern::Learner learn;
struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x; }
};
TORCH_MODULE(Net);
struct MyMetric : tern::MetricImpl {
  std::string name() const override { return "mine"; }
  bool higher_is_better() const override { return true; }
  void reset() override {}
  void update(const tern::Tensors&, const tern::Tensors&) override {}
  torch::Tensor compute() const override { return {}; }
};
torch::Tensor error_of(const torch::Tensor&, const torch::Tensor& target);
struct NoCallback {};
struct Epochs : tern::Callback { void on_epoch_end() {} };
struct Batches : tern::Callback { void on_batch_end(tern::Learner&) const {} };
"""
# Each mistake by name: its code, and words that the error must contain.
MISTAKES = {
    "callback_option": ('learn.add<tern::EarlyStopping>({.monitr = "f1"});', "EarlyStopping::Options"),
    "learner_option": ("tern::Learner(data, Net(), {.metric = {}});", "LearnerOptions"),
    "schedule_option": ("learn.fit_one_cycle(5, {.lr_max = 1e-2});", "OneCycleOptions"),
    # With overloads, compilers do not name the wrong field; with the type before the braces they
    # do.
    "typed_braces": ('tern::EarlyStopping::Options{.monitr = "f1"};', "monitr"),
    "metric_not_called": ("tern::Learner(data, Net(), {.metrics = {tern::accuracy}});", "tern::accuracy() with its parentheses"),
    "metric_without_name": ("tern::Learner(data, Net(), {.metrics = {error_of}});", 'tern::Metric("name", function)'),
    "metric_by_value": ("tern::Learner(data, Net(), {.metrics = {MyMetric()}});", "std::make_shared<YourMetric>()"),
    "plain_module": ("tern::Learner(data, NetImpl(), {});", "std::make_shared<Net>(...)"),
    "loss_of_one": ("tern::Learner(data, Net(), {.loss = [](torch::Tensor x) { return x; }});", "a tensor of predictions and one of targets"),
    "loss_impl": ("tern::Learner(data, Net(), {.loss = torch::nn::MSELossImpl()});", "not its Impl"),
    "callback_by_value": ("learn.add(tern::EarlyStopping());", "learn.add<C>(...)"),
    "callback_in_list": ("learn.fit(1, 1e-3, {tern::ReduceLROnPlateau()});", "std::make_shared<C>(...)"),
    "callback_arguments": ('learn.add<tern::EarlyStopping>("f1", 3);', "learn.add<C>({.field = value})"),
    "no_callback": ("learn.add<NoCallback>();", "derive it from tern::Callback"),
    "event_without_learner": ("learn.add<Epochs>();", "write void on_epoch_end(tern::Learner& learn) override"),
    "const_event": ("learn.add<Batches>();", "write void on_batch_end(tern::Learner& learn) override"),
}


def options_of(build):
    """The include folders, for any compiler."""
    entries = json.loads((build / "compile_commands.json").read_text())
    command = next(one["command"] for one in entries if one["file"].endswith("/tern_pch.cpp"))
    return re.findall(r" -isystem (\S+)| -I(\S+)", command)


def program():
    lines = [HEADERS]
    for name, (code, _) in MISTAKES.items():
        lines.append(f'#line 1 "{name}"\nvoid {name}() {{ {code} }}')
    return "\n".join(lines) + "\n"


def unsaid(output):
    """Yields mistakes whose error lacks the expected words."""
    lines = output.splitlines()
    for name, (code, words) in MISTAKES.items():
        near = (
            "\n".join(lines[max(0, i - NEAR) : i + NEAR])
            for i, line in enumerate(lines)
            if words in line
        )
        if not any(f"{name}:1:" in text for text in near):
            yield f"{code}\n  expected near its error: {words}"


def main():
    build = pathlib.Path(sys.argv[1])
    found = {name: shutil.which(name) for name in sys.argv[2:]}
    for name in found:
        if not found[name]:
            print(f"SKIPPED: {name} is not installed")
    compilers = sorted(set(filter(None, found.values())))
    folders = [system or own for system, own in options_of(build)]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "mistakes.cpp"
        file.write_text(program())

        def compile_with(compiler):
            command = [compiler, "-std=c++20", "-fsyntax-only", "-w", file, f"-I{build}/include"]
            for path in folders:
                command += ["-isystem", path]
            return subprocess.run(command, cwd=build, stderr=subprocess.PIPE, text=True).stderr

        with concurrent.futures.ThreadPoolExecutor() as pool:
            outputs = list(pool.map(compile_with, compilers))
    good = bool(compilers)
    for compiler, output in zip(compilers, outputs):
        left = list(unsaid(output))
        print(f"{compiler}: reports {len(MISTAKES) - len(left)} of {len(MISTAKES)} mistakes as expected")
        if left:
            good = False
            print("\n".join(left), output, sep="\n\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

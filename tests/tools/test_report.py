"""megalith report: the page in a browser, and what is refused before it is written."""

import json
import os
import subprocess

import pytest
from chromium import Page

MEGALITH = os.path.abspath("tools/megalith/megalith")
CONFIG = os.path.abspath("models/configs/qwen3-moe-small.test.json")


def megalith(*words):
    return subprocess.run([MEGALITH, *map(str, words)], capture_output=True, text=True, timeout=300)


def done(*words):
    result = megalith(*words)
    assert result.returncode == 0, result.stderr
    return result.stdout


class Made:
    """A plan of the small model, a timeline of it from the host platform, and a page with both kinds of timeline."""

    def __init__(self, folder):
        # A name that would end the page's data, were it not written otherwise.
        config = folder / "a<!--<script>.json"
        config.write_text(open(CONFIG).read())
        done("compile", config, "--target", "sm_90a", "--rows", 2, "--sms", 8, "--trace", "--no-cubins", "-o", folder)
        self.plan = folder / "sm_90a/rows2"
        self.trace = folder / "trace.json"
        done("run", self.plan, "--backend", "host", "--context", 40, "--trace", self.trace)
        self.measured = json.loads(self.trace.read_text())
        # Another one to stand above it: one launch of it, later.
        self.predicted = json.loads(self.trace.read_text())
        self.predicted["source"] = "predicted"
        self.predicted["launches"] = self.predicted["launches"][1:]
        (folder / "predicted.json").write_text(json.dumps(self.predicted))
        self.page = folder / "report.html"
        self.words = ["report", self.plan, "--trace", self.trace, "--predicted", folder / "predicted.json"]
        done(*self.words, "-o", self.page)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(made):
    with Page(made.page.as_uri()) as page:
        yield page


def tasks(timeline):
    return sum(len(warp["stages"]) for launch in timeline["launches"] for warp in launch["warps"])


def test_a_bar_for_every_task_of_both_timelines(made, page):
    shown = page.eval("megalithReport.timelines")
    for which, timeline in (("measured", made.measured), ("predicted", made.predicted)):
        assert tasks(timeline) > 100
        assert shown[which] == {"tasks": tasks(timeline), "bars": tasks(timeline),
                                "launches": len(timeline["launches"])}
    titles = page.eval("[...document.querySelectorAll('.pane h3')].map(h => h.firstChild.textContent)")
    assert titles == ["Predicted", "Measured"]


def place(page, role, sm, stage):
    """Where the middle of a bar of the lower timeline is on the screen, after scrolling there."""
    page.eval("document.querySelectorAll('canvas')[1].scrollIntoView({block: 'center'})")
    page.settle()
    return page.eval(f"""(() => {{
      const pane = megalithReport.view.panes[1], layout = pane.layout(), box = pane.canvas.getBoundingClientRect();
      const row = layout.rows.findIndex(([role, sm]) => role === {role} && sm === {sm});
      const bar = pane.timeline.rows[{role}][{sm}].find(b => b.stage === '{stage}');
      return {{x: box.x + pane.x((bar.begin + bar.end) / 2 - pane.timeline.origin),
               y: box.y + layout.y(row) + layout.height / 2}};
    }})()""")


def test_a_tooltip_tells_op_and_edge(page):
    page.eval("megalithReport.view.fit()")
    page.settle()
    page.mouse("mouseMoved", **place(page, 2, 3, "o_proj"))
    text = page.eval("document.getElementById('tip').innerText")
    assert page.eval("document.getElementById('tip').style.display") == "block"
    assert "o_proj, SM 3, consumer" in text and "moe.linear" in text
    assert "attn_words" in text and "stored by merge (epilogue)" in text
    page.mouse("mouseMoved", x=2, y=2)
    assert page.eval("document.getElementById('tip').style.display") == "none"


def test_both_timelines_zoom_and_pan_together(page):
    span = "megalithReport.view.end - megalithReport.view.begin"
    page.eval("megalithReport.view.fit()")
    before = page.eval(span)
    at = place(page, 2, 3, "o_proj")
    page.mouse("mouseWheel", **at, deltaX=0, deltaY=-400, modifiers=2)
    assert page.eval(span) < 0.6 * before
    begin = page.eval("megalithReport.view.begin")
    page.mouse("mousePressed", **at, button="left", clickCount=1)
    page.mouse("mouseMoved", x=at["x"] + 60, y=at["y"], button="left")
    page.mouse("mouseReleased", x=at["x"] + 60, y=at["y"], button="left", clickCount=1)
    assert page.eval("megalithReport.view.begin") < begin
    page.mouse("mouseWheel", **at, deltaX=0, deltaY=-400, modifiers=8)
    assert page.eval("megalithReport.view.panes.every(p => p.layout().height > p.layout().fitting)")
    page.eval("megalithReport.view.fit()")
    assert page.eval(span) == pytest.approx(before)


def test_bars_are_drawn(page):
    """Each stage's colour is on both canvases, and stalls' and waits'."""
    page.eval("view.showPath = false; view.fit()")
    page.settle()
    for pane in (0, 1):
        missing = page.eval(f"""(() => {{
          const pane = view.panes[{pane}], c = pane.canvas, seen = new Set();
          const data = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
          for (const pixel of data) seen.add(pixel);
          const wanted = [STREAM];
          for (const bar of pane.timeline.rows[2].flat()) wanted.push(shades(bar.stage).work, shades(bar.stage).wait);
          const pixel = hex => {{ const v = parseInt(hex.slice(1), 16); return (0xff000000 | (v & 255) << 16 | v & 0xff00 | v >> 16) >>> 0; }};
          return [...new Set(wanted)].filter(hex => !seen.has(pixel(hex))).length;
        }})()""")
        # A wait or a stall may be too short to be seen: not all of them.
        assert missing <= 4


def test_what_stands_below(made, page):
    facts = json.loads(done("explain", made.plan, "--json"))
    layer = next(k for k in facts["kernels"] if k["name"] == "layer")
    page.eval("show('layer')")
    rows = lambda section: page.eval(f"document.querySelectorAll('#{section} tbody')[0].rows.length")
    assert rows("stages") == len(layer["stages"]) + 1
    assert rows("exchanges") == sum(bool(x["readers"]) for x in layer["exchanges"])
    assert rows("edges") == sum("exchange" not in e for e in layer["edges"])
    assert rows("resources") == len(facts["kernels"])
    assert page.eval("document.querySelectorAll('.map rect').length") == len(layer["memory"])
    decisions = page.eval("document.getElementById('decisions').innerText")
    assert layer["stages"][2]["why"][0]["because"] in decisions


def test_the_path_adds_up(made, page):
    path = made.measured["path"]
    page.eval("show('layer')")
    sums = page.eval("[...document.querySelectorAll('#path tr.sum td')].map(td => td.innerText)")
    assert float(sums[3]) == pytest.approx((path["end"] - path["begin"]) / path["launches"] / 1000, abs=0.02)
    assert page.eval("document.querySelectorAll('#path .scroll')[1].querySelectorAll('tbody tr').length") == len(path["segments"])


def test_perfetto(made, page):
    events = page.eval("perfettoOf(timelines.measured).traceEvents")
    assert sum(e.get("cat") == "stage" for e in events) == tasks(made.measured)


def test_every_kernel_can_be_shown(page):
    for kernel in page.eval("megalithReport.kernels"):
        page.eval(f"show('{kernel}')")
    page.settle()


def test_nothing_from_elsewhere_and_no_complaint(made, page):
    """Last: what all tests above did counts."""
    assert set(page.requests) == {made.page.as_uri()}
    assert page.complaints == []
    assert page.eval("document.getElementById('title').textContent") == "a<!--<script>"


def test_a_prediction_is_simulated(made, tmp_path):
    for words in (["--context", 40], []):  # without: as many positions as the plan has
        result = megalith("report", made.plan, *words, "-o", tmp_path / "r.html")
        assert result.returncode == 0 and result.stderr == ""
        text = (tmp_path / "r.html").read_text()
        data = json.loads(text.split('id="predicted">')[1].split("</script>")[0])
        assert data["source"] == "predicted" and tasks(data) > 100
    result = megalith("report", made.plan, "--context", 4096, "-o", tmp_path / "other.html")
    assert result.returncode == 2 and "--context: expected a number from 0 to 4095 but got '4096'" in result.stderr
    assert not (tmp_path / "other.html").exists()


def test_a_plan_without_timelines(made, tmp_path):
    """What compile leaves."""
    with Page((made.plan / "report.html").as_uri()) as page:
        assert page.eval("megalithReport.timelines") == {}
        assert page.eval("document.querySelectorAll('.pane .empty').length") == 2
        assert page.complaints == []


def test_why_there_is_no_prediction(tmp_path):
    done("compile", CONFIG, "--target", "sm_100a", "--rows", 1, "--sms", 8, "--no-cubins", "-o", tmp_path)
    result = megalith("report", tmp_path / "sm_100a/rows1", "-o", tmp_path / "r.html")
    assert result.returncode == 0 and "no predicted timeline: no cost table for sm_100a" in result.stderr


def changed(timeline, change):
    other = json.loads(json.dumps(timeline))
    change(other)
    return other


CHANGES = [
    (lambda t: t.update(format="x"), "expected a timeline"),
    (lambda t: t.update(version=99), "version: expected 1 to 2 but got 99"),
    (lambda t: t.update(sms=132), "expected a timeline of a<!--<script> for sm_90a, 8 SMs, rows 2 but got"),
    (lambda t: t.pop("names"), "names: expected stages by kernel but got nothing"),
    (lambda t: t.update(launches=[]), "launches: expected at least one launch but got none"),
    (lambda t: t["launches"][0]["warps"][0].update(sm=8), "expected SMs below 8 and warps below 11 but got SM 8"),
    (lambda t: t["launches"][0]["warps"][0]["stages"][0].pop(), "expected [stage, begin, end, waited"),
    (lambda t: t["launches"][0]["warps"][0]["stages"][0].__setitem__(0, 99), "expected a stage below"),
    (lambda t: t["launches"][0]["warps"][0]["stages"][0].__setitem__(1, None), "expected [stage, begin, end, waited"),
    (lambda t: t["launches"][0].update(kernel="other"), "expected a kernel of \"names\" but got 'other'"),
    (lambda t: t["path"]["segments"][0].update(begin="x"), "path.segments[0].begin: expected a number"),
    (lambda t: t["path"]["segments"][0].update(stage=77), "path.segments: expected a stage below"),
    (lambda t: t["launches"][0]["warps"][0].update(begin=-1e300), ".begin: expected a number within 1e15 but got -1"),
    (lambda t: t["launches"][0]["warps"][0]["stages"][0].__setitem__(2, 1e300), "each within 1e15"),
    (lambda t: t.update(source="predicted"), "source: expected what was measured, by megalith bench or run --trace"),
    (lambda t: t.update(source="guessed"), "source: expected \"measured\" or \"predicted\" but got something else"),
    (lambda t: t["summary"]["kernels"][0].pop("hops"), "hops: expected a list but got nothing"),
    (lambda t: t["summary"]["kernels"][0]["stages"][0].update(length=None), ".length: expected a number"),
]


@pytest.mark.parametrize("change,says", CHANGES, ids=[says for _, says in CHANGES])
def test_a_timeline_that_is_none(made, tmp_path, change, says):
    (tmp_path / "t.json").write_text(json.dumps(changed(made.measured, change)))
    result = megalith("report", made.plan, "--trace", tmp_path / "t.json", "-o", tmp_path / "r.html")
    assert result.returncode == 1 and says in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert not (tmp_path / "r.html").exists()


def test_a_measured_timeline_is_no_prediction(made, tmp_path):
    result = megalith("report", made.plan, "--predicted", made.trace, "-o", tmp_path / "r.html")
    assert result.returncode == 1 and "source: expected what was predicted" in result.stderr
    assert not (tmp_path / "r.html").exists()


def test_timelines_that_do_not_say_are_measured(made, tmp_path):
    def older(timeline):
        timeline.update(version=1)
        timeline.pop("source")
        timeline.pop("path")

    (tmp_path / "t.json").write_text(json.dumps(changed(made.measured, older)))
    done("report", made.plan, "--trace", tmp_path / "t.json", "-o", tmp_path / "r.html")


def test_a_file_cut_short(made, tmp_path):
    (tmp_path / "t.json").write_text(made.trace.read_text()[:1000])
    result = megalith("report", made.plan, "--trace", tmp_path / "t.json", "-o", tmp_path / "r.html")
    assert result.returncode == 1 and "expected a timeline in JSON but got" in result.stderr

"""One page in headless Chromium, driven over its debugging pipe: needs Debian's `chromium`, no driver."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Page:
    """Opens `url`, waits until it is loaded. Everything the page complains of is in `complaints`."""

    def __init__(self, url, width=1400, height=900, seconds=60):
        self.deadline = time.monotonic() + seconds
        self.profile = tempfile.mkdtemp()
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        # The browser reads its descriptor 3 and writes 4: out of their way first.
        there = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, from_write)]

        def connect():
            os.dup2(there[0], 3)
            os.dup2(there[1], 4)

        # --no-sandbox: CI runs as root, and the page is ours. /dev/shm may be small in containers.
        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--remote-debugging-pipe", "--user-data-dir=" + self.profile, "about:blank"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.profile, "PATH": "/usr/bin:/bin"})
        for end in (to_read, from_write, *there):
            os.close(end)
        self.to, self.source = to_write, from_read
        self.buffer, self.events, self.last, self.session = b"", [], 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.events.append(self.read())
        self.settle()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.source)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self):
        while b"\0" not in self.buffer:
            left = self.deadline - time.monotonic()
            assert left > 0 and select.select([self.source], [], [], left)[0], "Chromium does not answer"
            text = os.read(self.source, 1 << 20)
            assert text, "Chromium is gone"
            self.buffer += text
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.last:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def eval(self, expression):
        """The value of a JavaScript expression, promises awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def settle(self):
        """Until what was asked for is drawn."""
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    @property
    def complaints(self):
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [e["params"] for e in self.events if e["method"] in kinds]

    @property
    def requests(self):
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

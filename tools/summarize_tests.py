import json, sys, urllib.parse, xml.etree.ElementTree as ET
last, total = {}, [0, 0, 0]
for e in map(json.loads, open(sys.argv[1])):
    if "testResult" in e:  # of each run and shard, the last attempt
        last[tuple(str(e["id"]["testResult"].get(k)) for k in ("label", "run", "shard"))] = e["testResult"]
for key, r in sorted(last.items(), key=lambda kv: kv[0]):
    n, ok = [0, 0, 0], r.get("status") in ("PASSED", "FLAKY")
    for uri in [o["uri"] for o in r.get("testActionOutput", []) if o["name"] == "test.xml"]:
        try:
            for case in ET.parse(urllib.parse.unquote(uri[7:])).iter("testcase"):
                tags = {c.tag for c in case}
                n[1 if tags & {"failure", "error"} else 2 if "skipped" in tags else 0] += 1
        except (OSError, ET.ParseError):
            pass
    n = [n[0] + (ok and not any(n)), n[1] + (not ok and not n[1]), n[2]]  # wrote no case; crashed or timed out
    print("%s  passed=%d failed=%d skipped=%d" % (key[0], *n))
    total = [a + b for a, b in zip(total, n)]
total[1] += int(sys.argv[2]) not in (0, 3) and not total[1]  # the build broke
print("%d passed, %d failed" % tuple(total[:2]) + (", %d skipped" % total[2] if total[2] else ""))

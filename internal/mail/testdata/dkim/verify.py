"""Verifies the signatures of each mail in a folder with dkimpy, and prints what it found as JSON.

The folder holds *.eml and records.json, which stands for DNS: names and the texts of their TXT records.
"""
import json
import pathlib
import sys

import dkim

folder = pathlib.Path(sys.argv[1])
records = json.loads((folder / "records.json").read_text())


def txt(name, timeout=5):
    return records[name.decode().rstrip(".")].encode()


def signatures(message):
    n = sum(1 for name, _ in dkim.rfc822_parse(message)[0] if name.lower() == b"dkim-signature")
    for i in range(n):
        d = dkim.DKIM(message, minkey=2048)
        try:
            good, why = d.verify(idx=i, dnsfunc=txt), ""
        except dkim.DKIMException as e:
            good, why = False, f"{type(e).__name__}: {e}"
        yield {
            "good": good,
            "why": why,
            "algorithm": d.signature_fields[b"a"].decode(),
            "signed": [h.decode() for h in d.include_headers],
        }


print(json.dumps({f.name: list(signatures(f.read_bytes())) for f in sorted(folder.glob("*.eml"))}))

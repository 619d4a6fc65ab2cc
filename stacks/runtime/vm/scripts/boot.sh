#!/bin/bash
# Installs the program of this machine, and starts its agent and its work. May run again.
python3 - <<'TONNAGE_FILE'
import base64, bz2, json, pathlib
packed = """@{files}"""
for name, text in json.loads(bz2.decompress(base64.b85decode(packed))).items():
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
TONNAGE_FILE
systemctl daemon-reload
systemctl enable --now tonnage-agent tonnage-work

"""Every block of YAML in the pages is YAML, and manifests in it name what they are."""

import pathlib
import re
import textwrap

import yaml

blocks = 0
for page in sorted(pathlib.Path("server/docs").glob("*.md")):
    for block in re.findall(r"^ *```yaml\n(.*?)^ *```$", page.read_text(), re.M | re.S):
        for part in yaml.safe_load_all(textwrap.dedent(block)):
            assert part, f"{page}: nothing in\n{block}"
            if isinstance(part, dict) and "apiVersion" in part:
                assert part["kind"] and part["metadata"]["name"] and "spec" in part, f"{page}:\n{block}"
        blocks += 1
assert blocks > 10, f"only {blocks}"
print(f"{blocks} blocks")

"""The JSON Schema of the manifest, for programs that read artifacts without dfc.

`python -m dfc.artifacts.schema > artifacts/manifest.schema.json` writes it again after a change of the format.
"""

import json

from dfc.artifacts.manifest import Manifest

SCHEMA_NAME = "manifest.schema.json"
"""The package's file that holds it."""


def manifest_schema() -> str:
    """Return the schema's text as the manifest's model makes it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Manifest.model_json_schema()}
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(manifest_schema(), end="")

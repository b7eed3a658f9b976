// Package docschema has the JSON Schema (2020-12) of flow documents, by which editors complete and check them. The
// tests of package flow hold it against the parser: both know the same fields and bounds. What a schema cannot say,
// such as that a step exists, only the parser checks.
package docschema

import _ "embed"

// JSON is the schema.
//
//go:embed flow.json
var JSON []byte

// The columns of the list of runs. A column of an attribute is attribute.NAME.

const named: Record<string, string> = {
  workflow: "Workflow", deployment: "Deployment", tags: "Key and attributes", created: "Created", ended: "Ended", took: "Took",
  events: "Events", now: "Now",
};

// The names of the columns that one may choose, besides attributes. The status and the run are always there.
export const columnNames = Object.keys(named);

export const usualColumns = ["workflow", "tags", "created", "took", "events", "now"];

const attribute = "attribute.";

// attributeOf returns the attribute that a column shows, or null.
export function attributeOf(column: string): string | null {
  return column.startsWith(attribute) && column.length > attribute.length ? column.slice(attribute.length) : null;
}

// titleOfColumn returns the heading of a column.
export function titleOfColumn(column: string): string {
  return attributeOf(column) ?? named[column] ?? column;
}

// parseColumns returns the columns in a text, of which a comma separates them; null if there is none. It leaves out what
// is no column. Commas in attributes are encoded.
export function parseColumns(text: string): string[] | null {
  const list = text.split(",").map((c) => {
    try {
      return decodeURIComponent(c);
    } catch {
      return "";
    }
  });
  const known = [...new Set(list)].filter((c) => columnNames.includes(c) || attributeOf(c) !== null);
  return known.length > 0 ? known : null;
}

// formatColumns returns the text of which parseColumns makes the same columns.
export function formatColumns(columns: string[]): string {
  return columns.map((c) => encodeURIComponent(c)).join(",");
}

// withColumn returns the columns with one added at its usual place, or removed.
export function withColumn(columns: string[], column: string): string[] {
  if (columns.includes(column)) return columns.filter((c) => c !== column);
  const place = (c: string) => (attributeOf(c) !== null ? columnNames.indexOf("tags") + 0.5 : columnNames.indexOf(c));
  const after = columns.findIndex((c) => place(c) > place(column));
  return after < 0 ? [...columns, column] : [...columns.slice(0, after), column, ...columns.slice(after)];
}

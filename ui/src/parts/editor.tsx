// A field for JSON, which says where a text is none.
import { JsonError, parseJson } from "../lib/jsontext";

// problemIn returns why a text is no JSON; empty if it is.
export function problemIn(text: string): string {
  try {
    parseJson(text);
    return "";
  } catch (err) {
    return err instanceof JsonError ? err.message : String(err);
  }
}

export interface EditorProps {
  label: string;
  text: string;
  // Whether there may be no value.
  optional?: boolean;
  change: (text: string) => void;
}

export function Editor({ label, text, optional, change }: EditorProps) {
  const problem = optional && text.trim() === "" ? "" : problemIn(text);
  return (
    <label>{label}
      <textarea class="mono" rows={6} spellcheck={false} value={text} aria-invalid={problem !== ""} onInput={(e) => change(e.currentTarget.value)} />
      <span class="problem">{problem}</span>
    </label>
  );
}

// A form that is made of a JSON Schema.
import { fill, keyOf, typedAt, type Field, type Typed } from "../lib/form";
import { readable } from "../lib/jsontext";

interface FormProps {
  fields: Field[];
  typed: Typed;
  // What is wrong, by the keys of the fields.
  problems: Record<string, string>;
  change: (typed: Typed) => void;
}

export function FormFields({ fields, typed, problems, change }: FormProps) {
  return (
    <div class="generated">
      {fields.map((f) => {
        const key = keyOf(f.path);
        return <Row key={key} field={f} text={typedAt(f, typed)} problem={problems[key] ?? ""} change={(text) => change({ ...typed, [key]: text })} />;
      })}
    </div>
  );
}

const shown = (choice: string) => choice.startsWith('"') ? readable(choice).slice(1, -1) : choice;

function Row({ field: f, text, problem, change }: { field: Field; text: string; problem: string; change: (text: string) => void }) {
  const common = {
    value: text, name: keyOf(f.path), required: false, "aria-required": f.required, "aria-invalid": problem !== "", spellcheck: false,
    onInput: (e: { currentTarget: { value: string } }) => change(e.currentTarget.value),
  };
  // What is wrong while one types; that a value is missing only when the form was sent.
  const wrong = problem || (text.trim() ? fill([f], { [keyOf(f.path)]: text }).problems[keyOf(f.path)] : "");
  const lines = f.kind === "long" || f.kind === "list" || f.kind === "json";
  return (
    <label class={lines ? "wide" : ""}><span>{f.label}{f.required && <span class="quiet"> required</span>}{f.kind === "list" && <span class="quiet"> one a line</span>}
      {f.kind === "json" && <span class="quiet"> JSON</span>}</span>
      {lines ? <textarea {...common} class={f.kind === "json" ? "mono" : ""} rows={3} />
        : f.kind === "boolean" ? <select {...common}><option value="">–</option><option value="true">yes</option><option value="false">no</option></select>
          : f.kind === "choice" ? <select {...common}><option value="">–</option>{f.choices.map((c) => <option value={c}>{shown(c)}</option>)}</select>
            : <input {...common} autocomplete="off" inputMode={f.kind === "number" ? "decimal" : f.kind === "integer" ? "numeric" : "text"} />}
      {f.help && <span class="quiet small">{f.help}</span>}
      {wrong && <span class="problem" role={problem ? "alert" : undefined}>{wrong}</span>}
    </label>
  );
}

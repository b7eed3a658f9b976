// The form that opens a project with a key.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { base } from "../api";
import { Trouble } from "../parts/notice";
import { Logo } from "../parts/icon";
import { Problem } from "../lib/problem";
import { pathOf } from "../lib/path";
import { go, project } from "../location";
import { enter } from "../session";

export function SignIn({ again }: { again: boolean }) {
  const key = useSignal("");
  const busy = useSignal(false);
  const problem = useSignal<Problem | null>(null);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = async (e: Event) => {
    e.preventDefault();
    busy.value = true;
    problem.value = null;
    try {
      const opened = await enter(key.value.trim());
      if (!project.value) go(pathOf(base, opened, "runs"), "replace");
    } catch (err) {
      problem.value = err as Problem;
    }
    busy.value = false;
  };
  const wrong = problem.value?.status === 401;
  return (
    <main class="signin">
      <form onSubmit={submit}>
        <h1><Logo />{again ? "Your session is over" : "Sign in to Stepwell"}</h1>
        <p>{again ? "Enter a key to go on where you are."
          : project.value ? <>Enter a key of the project <strong>{project.value}</strong>.</>
            : "A key opens its project, with the rights of its role."}</p>
        <label>API key
          <input type="password" name="key" autocomplete="current-password" required ref={field} spellcheck={false}
            value={key.value} onInput={(e) => (key.value = e.currentTarget.value)} aria-invalid={wrong} />
        </label>
        {wrong ? <div class="trouble" role="alert"><div><strong>This is no valid key.</strong> It may be mistyped, revoked or expired.</div></div>
          : problem.value && <Trouble problem={problem.value} />}
        {!isSecureContext && <p class="warning">This page comes over plain HTTP: others on the way can read the key.</p>}
        <button type="submit" class="primary" disabled={busy.value || !key.value}>{busy.value ? "Signing in …" : "Sign in"}</button>
        <p class="quiet small">A key is the server’s <code>STEPWELL_API_KEY</code>, or one made with{" "}
          <code>stepwell keys create NAME --role read</code>. This browser keeps no key, only a session of at most 30 days.</p>
      </form>
    </main>
  );
}

// The form that opens a project with a key.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { base, type Credential } from "../api";
import { Trouble } from "../parts/notice";
import { Logo } from "../parts/icon";
import { Problem } from "../lib/problem";
import { pathOf } from "../lib/path";
import { go, hash, page } from "../location";
import { enter, session } from "../session";

// codeIn returns the code of an address that stepwell ui has made; empty for none.
function codeIn(): string {
  return page.value.project === "-" && hash.value.startsWith("code=") ? decodeURIComponent(hash.value.slice(5)) : "";
}

// ends are how sign-ins by the identity provider end that do not succeed, as their address says.
const ends: Record<string, string> = {
  "#provider=failed": "The sign-in did not succeed. Try again; if it fails again, the log of the server says why.",
  "#provider=no-access": "None of your groups opens a project here. Whoever runs this server decides which do.",
};

// Provider signs in by the identity provider of the company, on its own pages.
function Provider({ host }: { host: string }) {
  const end = ends[`#${hash.value}`];
  return (
    <>
      {end && <div class="trouble" role="alert"><div>{end}</div></div>}
      <a class="button primary" href={`${base}/ui/-/provider`}>Sign in with {host}</a>
      <p class="quiet small">Or with a key:</p>
    </>
  );
}

export function SignIn({ again }: { again: boolean }) {
  const key = useSignal("");
  const busy = useSignal(false);
  const problem = useSignal<Problem | null>(null);
  const field = useRef<HTMLInputElement>(null);
  const code = useSignal("");
  const asking = useSignal(false); // whether to follow the link
  const wanted = page.value.project === "-" ? "" : page.value.project;
  const others = session.value?.projects.filter((p) => p.project !== page.value.project) ?? [];
  const open = async (by: Credential) => {
    busy.value = true;
    asking.value = false;
    problem.value = null;
    try {
      const opened = await enter(by);
      if (!wanted) go(pathOf(base, opened, "overview"), "replace");
    } catch (err) {
      problem.value = err as Problem;
    }
    busy.value = false;
  };
  useEffect(() => {
    field.current?.focus();
    code.value = codeIn();
    if (!code.value) return;
    go(pathOf(base, "-", "login"), "replace"); // so that the code is not in the history
    // Others may send a link with a code of theirs: what is open here would change without a question.
    if (others.length > 0) asking.value = true;
    else void open({ code: code.value });
  }, []);
  const submit = (e: Event) => {
    e.preventDefault();
    code.value = "";
    void open({ key: key.value.trim() });
  };
  const wrong = problem.value?.status === 401;
  return (
    <main class="signin">
      {!again && (
        <section class="welcome">
          <p class="name"><Logo />Stepwell</p>
          <p>Durable workflows on nothing but Postgres. Each run is a log that one can read: what it did, why it is not done, and what helps.</p>
          <p class="quiet small"><span class="mono">{location.host + base}</span>{session.value?.version && ` · ${session.value.version}`}{" · "}
            <a href="https://github.com/stepwell-dev/stepwell/blob/main/docs/dashboard.md" target="_blank" rel="noreferrer">About the dashboard</a></p>
        </section>
      )}
      <form onSubmit={submit}>
        <h1>{again ? <><Logo />Your session is over</> : "Sign in to Stepwell"}</h1>
        <p>{again ? "Enter a key to go on where you are."
          : wanted ? <>Enter a key of the project <strong>{wanted}</strong>.</>
            : "A key opens its project, with the rights of its role."}</p>
        {session.value?.provider && <Provider host={session.value.provider} />}
        {asking.value && <div class="warning"><p>This link opens a project with the key of whoever made it. Follow it only if you made it yourself.</p>
          <button type="button" onClick={() => void open({ code: code.value })}>Open the project</button></div>}
        <label>API key
          <input type="password" name="key" autocomplete="current-password" required ref={field} spellcheck={false}
            value={key.value} onInput={(e) => (key.value = e.currentTarget.value)} aria-invalid={wrong && !code.value} />
        </label>
        {wrong ? <div class="trouble" role="alert"><div>{code.value
          ? <><strong>This link has expired.</strong> It opens the dashboard once, within a minute. Make a new one with <code>stepwell ui</code>, or enter a key.</>
          : <><strong>This is no valid key.</strong> It may be mistyped, revoked or expired.</>}</div></div>
          : problem.value && <Trouble problem={problem.value} />}
        {!isSecureContext && <p class="warning">This page comes over plain HTTP: others on the way can read the key.</p>}
        <button type="submit" class="primary" disabled={busy.value || !key.value}>{busy.value ? "Signing in …" : "Sign in"}</button>
        {others.length > 0 && <p>Open in this browser: {others.map((p, i) => <>{i > 0 && ", "}<a href={pathOf(base, p.project, "overview")}>{p.project}</a></>)}</p>}
        <p class="quiet small">A key is the server’s <code>STEPWELL_API_KEY</code>, or one made with{" "}
          <code>stepwell keys create NAME --role read</code>; <code>stepwell ui</code> signs in without pasting it. This browser keeps no key, only a session of at most 30 days.</p>
      </form>
    </main>
  );
}

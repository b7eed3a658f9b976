// Dialogs: a form that does one thing. It stays open when that fails, with what was typed.
import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Problem } from "../lib/problem";
import { Trouble } from "./notice";

export interface DialogProps {
  title: string;
  button: string;
  danger?: boolean;
  // Why the form cannot be sent yet; empty if it can.
  blocked?: string;
  act: () => Promise<void>;
  close: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, button, danger, blocked, act, close, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const busy = useSignal(false);
  const problem = useSignal<Problem | null>(null);
  useLayoutEffect(() => element.current?.showModal(), []);
  const submit = async (e: Event) => {
    e.preventDefault();
    if (busy.value || blocked) return;
    busy.value = true;
    try {
      await act();
      element.current?.close(); // gives the focus back
    } catch (err) {
      problem.value = err instanceof Problem ? err : new Problem(-1, "page", String(err));
      busy.value = false;
    }
  };
  return (
    <dialog ref={element} onClose={close} aria-labelledby="dialog-title">
      <form onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        {children}
        {problem.value && <Trouble problem={problem.value} />}
        <div class="buttons">
          {blocked && <span class="quiet">{blocked}</span>}
          <button type="button" onClick={() => element.current?.close()}>Close</button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy.value || !!blocked}>
            {busy.value ? "Working …" : button}
          </button>
        </div>
      </form>
    </dialog>
  );
}

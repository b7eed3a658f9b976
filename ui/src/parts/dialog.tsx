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

// useModal shows a dialog while its part is there, and gives the focus back when the part goes. What closes the dialog must
// close it at once, and not with the event close, which comes when another dialog may be open already: so whoever closes it
// calls close, and what comes from a dialog that has gone calls nobody.
export function useModal(close: () => void) {
  const ref = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const element = ref.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  const closeThis = () => {
    if (ref.current) close();
  };
  return { modal: { ref, onCancel: closeThis, onClose: closeThis }, close: closeThis };
}

export function Dialog({ title, button, danger, blocked, act, close: closed, children }: DialogProps) {
  const { modal, close } = useModal(closed);
  const busy = useSignal(false);
  const problem = useSignal<Problem | null>(null);
  const submit = async (e: Event) => {
    e.preventDefault();
    if (busy.value || blocked) return;
    busy.value = true;
    try {
      await act();
      close();
    } catch (err) {
      problem.value = err instanceof Problem ? err : new Problem(-1, "page", String(err));
      busy.value = false;
    }
  };
  return (
    <dialog {...modal} aria-labelledby="dialog-title">
      <form onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        {children}
        {problem.value && <Trouble problem={problem.value} />}
        <div class="buttons">
          {blocked && <span class="quiet">{blocked}</span>}
          <button type="button" onClick={close}>Close</button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy.value || !!blocked}>
            {busy.value ? "Working …" : button}
          </button>
        </div>
      </form>
    </dialog>
  );
}

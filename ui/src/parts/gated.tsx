// Buttons for what not every role may do, and forms whose repetition counts once.
import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { may, needs, type Permission } from "../session";

// useId returns an ID that stays the same while a form is open, so that what is sent twice counts once.
export function useId(): string {
  return useSignal(crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`).value;
}

export interface GatedProps {
  permission: Permission;
  // Why it cannot be done now; empty if it can.
  off?: string;
  // What the button is called where its text does not say what it is about.
  label?: string;
  act: () => void;
  // Whether it is what one comes to the page for.
  primary?: boolean;
  children: ComponentChildren;
}

// Gated is a button for what not every role may do.
export function Gated({ permission, off = "", label, act, primary, children }: GatedProps) {
  return (
    <button type="button" class={primary ? "primary" : ""} aria-label={label} disabled={!may(permission) || off !== ""} title={may(permission) ? off : needs(permission)} onClick={act}>{children}</button>
  );
}

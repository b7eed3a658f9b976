// The dialog that saves a list of runs under a name.
import { useSignal } from "@preact/signals";
import { addressOf, server } from "../api";
import { curl, quote } from "../lib/shell";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { may, needs } from "../session";
import { keep, share, shared, type View } from "../views";

export function SaveView({ view, close }: { view: Omit<View, "name">; close: () => void }) {
  const name = useSignal("");
  const whose = useSignal<"me" | "project">("me");
  const v = { ...view, name: name.value.trim() };
  const { filter, columns, orderBy } = view;
  const act = async () => (whose.value === "me" ? keep(v) : share(v));
  const blocked = v.name === "" ? "The name is missing." : whose.value === "project" && !may("write") ? needs("write") : "";
  const path = { name: v.name || "NAME" };
  return (
    <Dialog title="Save this view" button="Save" act={act} close={close} blocked={blocked}>
      <label>Name<input name="view" value={name.value} maxLength={100} onInput={(e) => (name.value = e.currentTarget.value)} /></label>
      <fieldset>
        <legend>For</legend>
        <label class="check"><input type="radio" name="whose" checked={whose.value === "me"} onChange={() => (whose.value = "me")} />me, in this browser</label>
        <label class="check"><input type="radio" name="whose" checked={whose.value === "project"} onChange={() => (whose.value = "project")} />everybody in the project</label>
      </fieldset>
      {whose.value === "project" && shared.value.some((o) => o.name === v.name) && <p class="warning">It replaces the view that the project has under this name.</p>}
      {whose.value === "project" && <Commands
        cli={[`stepwell views set ${quote(path.name)} ${quote(filter) || "''"}`, ...columns.map((c) => `--column ${quote(c)}`),
          ...(orderBy === "ended" ? ["--order-by ended"] : [])].join(" ")}
        curl={curl(server, "PUT", addressOf("PUT /v1/views/{name}", { path }), JSON.stringify({ filter, columns, orderBy }))} />}
    </Dialog>
  );
}

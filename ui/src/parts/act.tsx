// A form that sends one request, and says the same as a command.
import type { ComponentChildren } from "preact";
import { addressOf, call, server, type Operation, type Request } from "../api";
import { curl } from "../lib/shell";
import { project } from "../location";
import { Commands } from "./copy";
import { Dialog, type DialogProps } from "./dialog";

// Form is what opens a form: what happens when it is done, and when it is closed.
export interface Form {
  done: () => void;
  close: () => void;
}

interface ActProps<K extends Operation> extends Omit<DialogProps, "act">, Form {
  operation: K;
  request: Request<K>;
  cli: string;
  children: ComponentChildren;
}

export function Act<K extends Operation>({ operation, request, cli, done, children, ...dialog }: ActProps<K>) {
  const act = async () => {
    await call(project.value, operation, request);
    done();
  };
  const body = request.text ?? (request.body ? JSON.stringify(request.body) : undefined);
  return (
    <Dialog {...dialog} act={act}>
      {children}
      <Commands cli={cli} curl={curl(server, operation.slice(0, operation.indexOf(" ")), addressOf(operation, request), body)} />
    </Dialog>
  );
}

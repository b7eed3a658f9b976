// Ways to the first run: what one pastes into a shell, with the address and the project of this server.
import { curl, quote } from "./shell";

export type Way = "sdk" | "go" | "http" | "flow";

// ways are the choices, with what readers call them.
export const ways: Array<{ name: Way; title: string }> = [
  { name: "sdk", title: "Workflow SDK" }, { name: "go", title: "Go" }, { name: "http", title: "Any language, by HTTP" }, { name: "flow", title: "Flow, no code" },
];

// Server is where the commands lead.
export interface Server {
  address: string;
  project: string;
  // Whether it lets everybody in, without a key.
  open: boolean;
}

// Text is something to paste, and what it is.
export interface Text {
  say: string;
  paste: string;
  curl?: string;
}

const python = `import json
from http.server import BaseHTTPRequestHandler, HTTPServer

class Function(BaseHTTPRequestHandler):
    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        waited = any(e["type"] == "wait_completed" for e in call["events"])
        wait = {"type": "wait", "id": "pause", "for": "5s"}
        complete = {"type": "complete", "output": "Hello"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"commands": [complete if waited else wait]}).encode())

HTTPServer(("127.0.0.1", 3000), Function).serve_forever()
`;

const program = `package main

import (
	"context"
	"log"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var Hello = stepwell.NewWorkflow[string, string]("hello")

func hello(w *stepwell.Context, name string) (string, error) {
	return "Hello, " + name, w.Sleep(5 * time.Second)
}

func main() {
	app := stepwell.NewApp(stepwell.AppConfig{Name: "hello", PublicURL: "http://127.0.0.1:3000"})
	app.Register(Hello.Bind(hello))
	log.Fatal(app.Serve(context.Background(), "127.0.0.1:3000"))
}
`;

const flow = `flow: hello
steps:
  pause: {wait: 5s}
  greet: {needs: pause, set: Hello}
output: "\${steps.greet.output}"
`;

// environment returns the command that makes the later ones speak to the server.
function environment(s: Server): string {
  return `export STEPWELL_URL=${quote(s.address)}` + (s.open ? "" : ` STEPWELL_API_KEY=…   # a key of the project ${s.project}`);
}

// appOf returns how one starts an app in a way.
export function appOf(way: Way, s: Server): Text {
  const file = (name: string, text: string) => `cat > ${name} <<'END'\n${text}END\n`;
  switch (way) {
    case "sdk": return {
      say: "In the folder of your app: install what connects it, and tell it where this server is.",
      paste: `npm i ${quote(s.address + "/clients/world.tgz")}\ncat >> .env.local <<'END'\nSTEPWELL_URL=${s.address}\n${s.open ? "" : "STEPWELL_API_KEY=…\n"}` +
        "STEPWELL_DEPLOYMENT_ID=my-app\nWORKFLOW_TARGET_WORLD=@stepwell/world\nEND\nnpm run dev",
    };
    case "go": return {
      say: "A program with one workflow. The SDK comes from a clone, as long as there is no release.",
      paste: `${environment(s)}\ngit clone https://github.com/stepwell-dev/stepwell\nmkdir hello && cd hello && go mod init example.com/hello\n` +
        "go mod edit -replace github.com/stepwell-dev/stepwell/sdk=../stepwell/sdk -require github.com/stepwell-dev/stepwell/sdk@v0.0.0\n" +
        `${file("main.go", program)}STEPWELL_SIGNING_KEYS=$(stepwell signing-keys create --rotate) go run .`,
    };
    case "http": return {
      say: "Any endpoint that answers with commands is a workflow, such as this one:",
      paste: `${file("hello.py", python)}python3 hello.py`,
    };
    case "flow": return {
      say: "A flow needs no app: it is a document, and the server executes it.",
      paste: file("hello.yaml", flow).trimEnd(),
    };
  }
}

// registrationOf returns how the server learns of the app.
export function registrationOf(way: Way, s: Server): Text {
  switch (way) {
    case "sdk": return { say: "The app does it, when it uses a workflow for the first time.", paste: "" };
    case "go": return { say: "The program does it, when it starts.", paste: "" };
    case "http": return {
      say: "Tell the server where the endpoint is. It must be able to reach it there.",
      paste: `${environment(s)}\nstepwell deployments add hello http://127.0.0.1:3000`,
      curl: curl(s.address, "PUT", "/v1/deployments/hello", JSON.stringify({ url: "http://127.0.0.1:3000" })),
    };
    case "flow": return {
      say: "Store it.",
      paste: `${environment(s)}\nstepwell flows put hello.yaml`,
      curl: curl(s.address, "POST", "/v1/flows", JSON.stringify({ document: flow })),
    };
  }
}

// Known is a deployment that is registered.
export interface Known {
  id: string;
  url: string;
  workflows?: string[];
}

// startOf returns how one starts a run: of a workflow of the deployment, if there is one.
export function startOf(way: Way, s: Server, known?: Known): Text {
  if (known ? known.url === "pull:" : way === "sdk") {
    return { say: "In the app, with a workflow of yours:", paste: "import { start } from 'workflow/api';\nawait start(myWorkflow, []);" };
  }
  const named = known?.url.startsWith("flow:") ? known.url.slice(5).split("@")[0] : known?.workflows?.[0];
  const workflow = named ?? (known ? "order" : "hello");
  const deployment = named || !known && way !== "http" ? undefined : known?.id ?? "hello";
  const body = { workflow, ...(deployment && { deployment }), input: "Ann" };
  return {
    say: "",
    paste: `stepwell runs start ${quote(workflow)}${deployment ? ` --deployment ${quote(deployment)}` : ""} --input '"Ann"'`,
    curl: curl(s.address, "POST", "/v1/runs", JSON.stringify(body)),
  };
}

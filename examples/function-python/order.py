"""An order workflow on Stepwell, written with only Python's standard library.

The first part is a minimal SDK: results come from the run's log, and each missing result becomes a command. The
second part is the workflow with its steps. docs/function-contract.md describes the whole contract.
"""

import json
import os
import sys
import time
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from threading import Event, Thread
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from signature import Refused, parse_keys, verify

# Calls must be signed with one of these keys. There are two during a rotation. Without keys, every call is accepted.
KEYS = parse_keys(os.environ["STEPWELL_SIGNING_KEYS"]) if os.environ.get("STEPWELL_SIGNING_KEYS") else None

# The server's address, or that of a load balancer in front of several: for the rest of a long log, and for steps whose
# server has gone.
SERVER = os.environ.get("STEPWELL_URL", "http://127.0.0.1:8788")


class Waiting(Exception):
    """The workflow cannot continue, because a result is not in the log yet."""


class Failed(Exception):
    """A permanent failure. A step that raises it is not retried; after any other exception it is."""


def line():
    """Returns the line of the workflow that is being executed."""
    frame = sys._getframe(1)
    while isinstance(frame.f_locals.get("self"), Workflow):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


class Workflow:
    def __init__(self, events, features):
        self.log = {(e["type"], e.get("correlationId")): e for e in reversed(events)}  # the first event wins
        self.features = features  # what the server can do; answers may use only this
        self.commands = []

    def step(self, id, input=None, **options):
        """Starts a step, in parallel with others. Call the returned function to wait for its result."""
        self.ask("step_created", type="runStep", id=id, input=input, **options)
        return lambda: self.result(id)

    def sleep(self, id, duration):
        self.ask("wait_created", type="wait", id=id, **{"for": duration})
        self.need("wait_completed", id)

    def hook(self, id, token):
        """Waits for a payload sent to the token."""
        if ("hook_conflict", id) in self.log:
            raise Failed(f"another run has the token {token}")
        self.ask("hook_created", type="openHook", id=id, token=token)
        return self.need("hook_received", id)

    def result(self, id):
        if failure := self.log.get(("step_failed", id)):
            raise Failed(f"{id}: {failure['payload']['message']}")
        return self.need("step_completed", id)

    def ask(self, answered_by, **command):
        if (answered_by, command["id"]) not in self.log:
            if "at" in self.features:
                command["at"] = line()  # the server shows it with the step
            self.commands.append(command)

    def need(self, type, id):
        if (type, id) not in self.log:
            raise Waiting
        return self.log[type, id].get("payload")


def advance(call):
    """Replays the workflow as far as its log goes, and returns its next commands."""
    events = call["events"] + (list(rest(call)) if "after" in call else [])
    run, workflow = call["run"], Workflow(events, call.get("server", {}).get("features", []))
    try:
        output = WORKFLOWS[run["workflow"]](workflow, run.get("input"))
        workflow.commands.append({"type": "complete", "output": output})
    except Waiting:
        pass
    except Failed as e:
        workflow.commands.append({"type": "fail", "error": {"message": str(e)}})
    return {"commands": workflow.commands}


def rest(call):
    """Reads the events that did not fit into the call. The call brings the token for that, so no API key is needed."""
    query = {"after": call["after"], "limit": 1000, "payloads": "true"}
    while True:
        url = f"{SERVER}/v1/runs/{call['run']['id']}/events?{urlencode(query)}"
        with urlopen(Request(url, headers={"Authorization": f"Bearer {call['token']}"}), timeout=30) as response:
            page = json.load(response)
        yield from page["data"]
        if not page.get("cursor"):
            return
        query["cursor"] = page["cursor"]


def execute(call):
    """Executes a step and returns its output."""
    return STEPS[call["step"]["name"]](call["step"].get("input"), call)


def perform(call):
    """Executes a step, or advances a workflow, and returns the status and the body of the answer."""
    try:
        return 200, execute(call) if call["type"] == "step" else advance(call)
    except Failed as e:
        return 422, {"error": {"message": str(e)}}
    except Exception as e:  # the server retries after any failure other than Failed, and shows the code with the run
        return 500, {"error": {"message": f"{type(e).__name__}: {e}", "code": type(e).__name__}}


def show(call):
    name = call["step"]["name"] if call["type"] == "step" else call["run"]["workflow"]
    # One write, because threads that print at the same time would mix their lines.
    print(f'{call["type"]} {name} attempt {call["attempt"]}\n', end="", flush=True)


def keep(call, done):
    """Says in short intervals that a step works. When the server that has called it stops or dies, it goes on then, and
    is not called again."""
    pause = 1
    while not done.wait(pause) and not is_refused(tell(call, "keep")):
        pause = 3


def deliver(call, status, answer, seen=0):
    """Gives any server the answer to a call whose connection has ended, or that a worker has made."""
    body = {"status": status, "body": answer, **({"seen": seen} if seen else {})}
    while (told := tell(call, "answer", body)) != 204 and not is_refused(told):
        time.sleep(3)


def tell(call, what, body=None):
    """Tells any server something about a call under way, and returns the status of its answer."""
    url = f"{SERVER}/v1/runs/{call['run']['id']}/call/{what}"
    headers = {"Authorization": f"Bearer {call['token']}", "Content-Type": "application/json"}
    data = b"" if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, headers, method="POST"), timeout=3) as response:
            return response.status
    except HTTPError as e:
        return e.code
    except (OSError, HTTPException):  # no server is there at the moment
        return 503


def is_refused(status):
    """Reports whether asking again is of no use. Mostly the call is over: for example, the step was cancelled."""
    return 400 <= status < 500 and status not in (408, 429)


class Function(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            if KEYS:
                verify("POST", self.path, self.headers, body, KEYS, time.time())
        except Refused as e:  # not the step's fault, so the server may retry
            error = {"message": str(e.args[1]), "code": "wrong_signature", "retryable": True}
            return self.answer(401, {"error": error})
        call = json.loads(body)
        show(call)
        done, kept = Event(), call["type"] == "step" and "answer" in call.get("server", {}).get("features", [])
        if kept:
            Thread(target=keep, args=(call, done), daemon=True).start()
        try:
            status, answer = perform(call)
            if kept and self.is_closed():
                deliver(call, status, answer)
            else:
                self.answer(status, answer)
        finally:
            done.set()

    def is_closed(self):
        """Reports whether the server has closed the connection: after the call, there is nothing else to read."""
        return bool(select([self.connection], [], [], 0)[0])

    def answer(self, status, answer):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


class Worker:
    """Asks the server for calls, so that nothing has to reach this program: it needs no port and no URL."""

    def __init__(self, deployment, slots=10):
        self.ask = {"deployment": deployment, "worker": os.urandom(8).hex(), "slots": slots}
        self.hand = set()  # the calls under way

    def run(self):
        first = {"wait": "0s", "registration": {"workflows": list(WORKFLOWS)}}
        while True:
            try:
                got = self.request({**self.ask, **first, "calls": list(self.hand)})
            except HTTPError as e:
                if is_refused(e.code):
                    raise SystemExit(f"{e}: {e.read().decode()}")
                time.sleep(1)
                continue
            except (OSError, HTTPException):  # no server is there at the moment
                time.sleep(1)
                continue
            if first:
                first = {}
                print("working", flush=True)
            for taken in got["calls"]:
                self.hand.add(taken["body"]["invocation"])
                Thread(target=self.make, args=(taken["body"], taken["seen"]), daemon=True).start()

    def request(self, ask):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('STEPWELL_API_KEY', '')}"}
        request = Request(f"{SERVER}/v1/work", json.dumps(ask).encode(), headers, method="POST")
        with urlopen(request, timeout=10 if ask["calls"] else 40) as response:
            return json.load(response)

    def make(self, call, seen):
        show(call)
        try:
            status, answer = perform(call)
            deliver(call, status, answer, seen)
        finally:
            self.hand.discard(call["invocation"])


# The application starts here.


def order(workflow, order):
    charge = workflow.step("charge", order, retry={"maxAttempts": 5, "backoff": "200ms"})
    reserve = workflow.step("reserve", order, attemptTimeout="30s")
    payment = charge()  # both steps are running by now
    try:
        reserve()
        workflow.sleep("cool-off", "1s")
        if not workflow.hook("approval", token=f"approve-{order['id']}")["approved"]:
            raise Failed("it was not approved")
    except Failed as e:
        workflow.step("refund", payment)()
        return {"status": "rejected", "reason": str(e)}
    return {"status": "shipped", "payment": payment, "parcel": workflow.step("ship", order["item"])()}


def charge(order, call):
    if call["attempt"] == 1:
        raise ConnectionError("the bank is busy")  # a transient error; the next attempt succeeds
    return {"charged": order["amount"], "key": f"{call['run']['id']}/{call['step']['id']}"}


def reserve(order, call):
    if order["item"] == "unicorn":
        raise Failed("there are no unicorns")
    time.sleep(order.get("seconds", 0))  # the work itself
    return {"reserved": order["item"]}


WORKFLOWS = {"order": order}
STEPS = {
    "charge": charge,
    "reserve": reserve,
    "refund": lambda payment, call: {"refunded": payment["charged"]},
    "ship": lambda item, call: f"a parcel with one {item}",
}


if __name__ == "__main__":
    if "--work" in sys.argv:
        Worker(os.environ.get("STEPWELL_DEPLOYMENT_ID", "orders")).run()
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Function)
    print("listening", server.server_port, flush=True)
    server.serve_forever()

#!/usr/bin/env python3
"""A conversation in a terminal: history, Ctrl-C, Ctrl-D, and how little an idle chat costs; prompts and answers in pipes."""
import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import ALLOWED_S, Job, t

PROMPT = "> "
ANSWER_S = 60               # on a crowded machine
LAYOUTS = ("tp=1", "tp=2")


class Chat(Job):
    """`stoa run` with a terminal of its own on standard input and output."""

    def __init__(self, *args):
        self.terminal, theirs = pty.openpty()
        settings = termios.tcgetattr(theirs)
        settings[3] &= ~termios.ECHO
        settings[1] &= ~termios.ONLCR
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        super().__init__("run", *args, stdin=theirs, stdout=theirs, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)

    def __exit__(self, *exception):
        super().__exit__(*exception)
        os.close(self.terminal)

    def read(self, seconds):
        """What comes within that time, at once when something is there; "" for nothing or the end."""
        if not select.select([self.terminal], [], [], max(seconds, 0))[0]:
            return ""
        try:
            return os.read(self.terminal, 65536).decode(errors="replace")
        except OSError:     # the other end is closed
            return ""

    def until_prompt(self, seconds=ANSWER_S):
        """The text before the next prompt; None when none comes."""
        text, end = "", time.monotonic() + seconds
        while not text.endswith(PROMPT):
            if time.monotonic() > end:
                return None
            text += self.read(0.2)
        return text[:-len(PROMPT)]

    def send(self, text):
        os.write(self.terminal, text.encode())

    def ask(self, line):
        self.send(line + "\n")
        answer = self.until_prompt()
        return None if answer is None else answer[:-1]      # the end of its last line

    def finish(self, name):
        self.send("\x04")
        try:
            code = self.process.wait(ALLOWED_S)
        except subprocess.TimeoutExpired:
            code = None
        t.equal(f"{name}: Ctrl-D ends with exit code 0", code, 0)
        self.nothing_is_left(name, time.monotonic())


def chatml(*turns):
    text = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    for role, content in turns:
        text += f"<|im_start|>{role}\n{content}<|im_end|>\n"
    return text + "<|im_start|>assistant\n"


def test_history():
    if not t.have_model("history"):
        return
    first, second = "Hi, I am Ada.", "What is my name?"
    for layout in LAYOUTS:
        with Chat(t.MODEL, "-n", "24", "--layout", layout) as chat:
            t.equal(f"{layout}: a prompt comes", chat.until_prompt(), "")
            one = chat.ask(first)
            two = chat.ask(second)
            three = chat.ask(second)
            chat.finish(f"history, {layout}")
        want_one = t.stoa_json("run", t.MODEL, "-p", first, "-n", "24")["text"]
        want_two = t.stoa_json("run", t.MODEL, "--raw", "-p", chatml(("user", first), ("assistant", want_one), ("user", second)), "-n", "24")["text"]
        t.equal(f"{layout}: the first answer", one, want_one)
        t.equal(f"{layout}: the second answer knows the first turn", two, want_two)
        t.check(f"{layout}: an answer depends on the turns before", two != t.stoa_json("run", t.MODEL, "-p", second, "-n", "24")["text"], two)
        t.check(f"{layout}: a third turn is answered", three)


def test_interrupt():
    """Ctrl-C stops the answer and not the program, twice; at the prompt it does nothing."""
    if not t.have_model("Ctrl-C"):
        return
    for layout in LAYOUTS:
        with Chat(t.MODEL, "-n", "4000", "--ignore-eos", "--layout", layout) as chat:
            if not t.check(f"{layout}: a prompt comes", chat.until_prompt() is not None):
                continue
            for n in (1, 2):
                chat.send("Tell me a very long story.\n")
                begun = chat.read(ANSWER_S)
                start = time.monotonic()
                chat.send("\x03")
                rest = chat.until_prompt(ALLOWED_S)
                t.check(f"{layout}: Ctrl-C {n} stops an answer", begun and rest is not None, f"begun with {begun!r}, then {rest!r}")
                if os.environ.get("TEST_TIMES"):
                    print(f"{time.monotonic() - start:8.2f} s  from Ctrl-C to the prompt, {layout}")
            t.check(f"{layout}: the program is there after Ctrl-C", chat.process.poll() is None, chat.process.returncode)
            chat.send("\x03")
            t.check(f"{layout}: Ctrl-C at the prompt gives a prompt", chat.until_prompt(ALLOWED_S) is not None)
            chat.finish(f"Ctrl-C, {layout}")


def test_an_idle_chat_is_cheap():
    if not t.have_model("an idle chat"):
        return
    for layout, share in (("tp=1", 0.02), ("tp=2", 0.25), ("pp=2,tp=2", 0.5)):
        with Chat(t.MODEL, "-n", "4", "--layout", layout) as chat:
            chat.until_prompt()
            chat.ask("Hi")
            before, start = chat.cpu_seconds(), time.monotonic()
            time.sleep(2)
            used = (chat.cpu_seconds() - before) / (time.monotonic() - start)
            t.check(f"an idle chat, {layout}: under {share} of a core", used < share, used)
            if os.environ.get("TEST_TIMES"):
                print(f"  {100 * used:6.1f} % of a core, an idle chat of {layout}")
            chat.finish(f"an idle chat, {layout}")


def test_closed_terminal():
    """A terminal that is closed (SIGHUP) leaves no rank behind."""
    if not t.have_model("a closed terminal"):
        return
    with Chat(t.MODEL, "-n", "4000", "--ignore-eos", "--layout", "tp=2") as chat:
        chat.until_prompt()
        chat.send("Tell me a long story.\n")
        chat.read(ANSWER_S)
        start = time.monotonic()
        os.close(chat.terminal)
        chat.terminal = os.open("/dev/null", os.O_RDONLY)
        try:
            chat.process.wait(ALLOWED_S)
        except subprocess.TimeoutExpired:
            t.check("a closed terminal ends the chat", False)
        chat.nothing_is_left("a closed terminal", start)


def test_pipes():
    if not t.have_tiny("pipes"):
        return
    m, prompt = t.tiny("tiny-q4_1"), "The sea,\nthe sky"
    want = t.stoa_json("run", m, "--raw", "-p", prompt, "-n", "20", "--ignore-eos")
    for layout in (*LAYOUTS, "pp=2"):
        args = ("run", m, "--raw", "-n", "20", "--ignore-eos", "--layout", layout)
        r = t.stoa(*args, "--json", input=prompt + "\n")
        t.check(f"{layout}: a piped prompt", r.code == 0 and r.json["tokens"] == want["tokens"], r)
        r = t.stoa(*args, "-p", prompt)
        t.check(f"{layout}: standard output holds the answer alone", r.code == 0 and r.out == want["text"] + "\n", f"wanted {want['text']!r}: {r}")
        t.check(f"{layout}: standard error names layout, weights and speed", layout in r.err and "bytes" in r.err and "tokens/s" in r.err, r.err)
    long = " ".join(["the sea and the sky"] * 60)
    for layout in LAYOUTS:
        r = t.stoa("run", m, "--raw", "-n", "2", "--layout", layout, "--json", input=long)
        t.check(f"{layout}: a long piped prompt", r.code == 0 and r.json["prompt_tokens"] > 200, r)


if __name__ == "__main__":
    t.run(globals())

"""The official `openai` client against a server: argv[1] is its address; argv[2], where it is given, the process of a rank that is to
die in the middle of an answer.  Needs the Python of scripts/openai-client."""
import asyncio
import os
import signal
import sys

import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model
hello = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
extra = {"ignore_eos": True, "top_k": 50, "min_p": 0.0}


def see_the_end(rank):
    """SS-09: a stream that is cut raises an error, and does not look like one that is whole."""
    answer = client.completions.create(model=model, prompt="One", max_tokens=900, n=48, stream=True, extra_body=extra)
    try:
        for i, _ in enumerate(answer):
            if i == 5:
                os.kill(rank, signal.SIGKILL)
        raise SystemExit("the stream ended as if it were whole")
    except openai.APIError as error:
        assert "died" in error.message, error
    print("all is well")


if len(sys.argv) > 2:
    see_the_end(int(sys.argv[2]))
    sys.exit()

# chat: whole, streamed, several choices, logprobs, our answer sent back to us
whole = client.chat.completions.create(model=model, messages=hello, max_completion_tokens=12, temperature=0, extra_body=extra)
assert whole.choices[0].message.role == "assistant" and whole.choices[0].finish_reason == "length", whole
assert whole.usage.completion_tokens == 12 and whole.usage.total_tokens == whole.usage.prompt_tokens + 12, whole
text, usage, reasons = "", None, []
for chunk in client.chat.completions.create(model=model, messages=hello, max_completion_tokens=12, temperature=0, stream=True,
                                            stream_options={"include_usage": True}, extra_body=extra):
    for choice in chunk.choices:
        text += choice.delta.content or ""
        reasons += [choice.finish_reason] if choice.finish_reason else []
    usage = chunk.usage or usage
assert text == whole.choices[0].message.content and reasons == ["length"] and usage.total_tokens == whole.usage.total_tokens, (text, reasons, usage, whole)
several = client.chat.completions.create(model=model, messages=hello, max_tokens=6, n=3, seed=1, temperature=1, top_p=0.9, presence_penalty=0.5,
                                         frequency_penalty=0.5, logit_bias={"5": -100}, user="me", extra_body=extra)
assert sorted(c.index for c in several.choices) == [0, 1, 2], several
scored = client.chat.completions.create(model=model, messages=hello, max_tokens=4, logprobs=True, top_logprobs=3, temperature=0, extra_body=extra)
for entry in scored.choices[0].logprobs.content:
    assert len(entry.top_logprobs) == 3 and entry.logprob <= 0 and entry.top_logprobs[0].token == entry.token, entry
back = client.chat.completions.create(model=model, messages=[*hello, whole.choices[0].message, {"role": "user", "content": "More"}], max_tokens=3)
assert back.choices[0].message.content is not None
two = client.chat.completions.create(model=model, messages=hello, max_tokens=6, n=2, seed=3, temperature=1, extra_body=extra)
pieces = {}
for chunk in client.chat.completions.create(model=model, messages=hello, max_tokens=6, n=2, seed=3, temperature=1, stream=True, extra_body=extra):
    for choice in chunk.choices:
        pieces[choice.index] = pieces.get(choice.index, "") + (choice.delta.content or "")
assert pieces == {c.index: c.message.content for c in two.choices}, (pieces, two)
stop = text[-3:-1]
stopped = [chunk.choices[0] for chunk in client.chat.completions.create(model=model, messages=hello, max_completion_tokens=12, temperature=0, stop=[stop],
                                                                        response_format={"type": "text"}, stream=True, extra_body=extra)]
assert "".join(c.delta.content or "" for c in stopped) == text.split(stop)[0] and stopped[-1].finish_reason == "stop", (stop, text, stopped)
with client.chat.completions.stream(model=model, messages=hello, max_tokens=12, temperature=0, extra_body=extra) as stream:
    assert "".join(event.delta for event in stream if event.type == "content.delta") == text

# completions
done = client.completions.create(model=model, prompt=["One", "Two"], max_tokens=5, n=2, temperature=0, stop=["\u2603"], logprobs=2, extra_body=extra)
assert [c.index for c in sorted(done.choices, key=lambda c: c.index)] == [0, 1, 2, 3] and done.choices[0].logprobs.tokens, done
pieces = {}
for chunk in client.completions.create(model=model, prompt=["One", "Two"], max_tokens=5, n=2, temperature=0, stream=True, extra_body=extra):
    for choice in chunk.choices:
        pieces[choice.index] = pieces.get(choice.index, "") + choice.text
assert pieces == {c.index: c.text for c in done.choices}, (pieces, done)

echoed = client.completions.create(model=model, prompt="One", max_tokens=5, temperature=0, echo=True, extra_body=extra)
assert echoed.choices[0].text == "One" + done.choices[0].text, (echoed, done)

# errors have the client's types
for expected, call in (
        (openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=[])),
        (openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=hello, temperature=9)),
        (openai.NotFoundError, lambda: client.models.retrieve("nobody"))):
    try:
        call()
        raise SystemExit(f"no {expected.__name__}")
    except expected as error:
        assert error.body["message"] and error.request_id, error.body

# many at once
async def many():
    several_at_once = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    answers = await asyncio.gather(*(several_at_once.chat.completions.create(model=model, messages=hello, max_tokens=12, temperature=0, extra_body=extra)
                                     for _ in range(16)))
    assert {a.choices[0].message.content for a in answers} == {text}, answers


asyncio.run(many())
print("all is well")

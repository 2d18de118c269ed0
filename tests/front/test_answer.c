/* test_answer.c: what clients see of tokens: bodies, events, stop strings, logprobs; and that cuts change nothing. */
#include "front/answer.h"
#include "tests/front/tiny_model.h"

#include <jansson.h>
#include <stdio.h>

static struct tiny_model tiny;

static struct answer *open_answer(enum api_kind kind, const char *body)
{
    struct api_request *request = NULL;
    struct api_error error = { 0 };
    struct answer *a = NULL;
    if (!check_int(api_read(&request, kind, &tiny.api, body, strlen(body), &error), 0)) {
        printf("  %s\n", error.message);
        exit(1);
    }
    check_int(answer_open(&a, request, &tiny.api, "1", 1700000001), 0);
    return a;
}

static bool take(struct answer *a, uint32_t choice, uint32_t index, uint32_t id)
{
    Stoa__Wire__Token token = STOA__WIRE__TOKEN__INIT;
    Stoa__Wire__Top top[2] = { STOA__WIRE__TOP__INIT, STOA__WIRE__TOP__INIT }, *list[2] = { &top[0], &top[1] };
    token.index = index;
    token.id = id;
    token.logprob = -0.5f;
    top[0].id = id;
    top[0].logprob = -0.5f;
    top[1].id = (id + 1) % TINY_VOCAB;
    top[1].logprob = -1.25f;
    token.n_top = 2;
    token.top = list;
    return answer_take_token(a, choice, &token);
}

static void take_text(struct answer *a, uint32_t choice, uint32_t first, const char *text)
{
    for (uint32_t i = 0; text[i]; i++)
        take(a, choice, first + i, (unsigned char)text[i]);
}

static void finish(struct answer *a, uint32_t choice, Stoa__Wire__Reason reason)
{
    Stoa__Wire__Finish end = STOA__WIRE__FINISH__INIT;
    end.reason = reason;
    end.cached_tokens = 2;
    answer_take_finish(a, choice, &end);
}

static const char *streamed(struct answer *a)
{
    static struct buffer out;
    out.size = 0;
    buffer_add_text(&out, "");
    while (answer_stream(a, &out, 1 << 20))
        ;
    return out.bytes;
}

static const char *whole(struct answer *a)
{
    static struct buffer out;
    out.size = 0;
    answer_whole(a, &out);
    return out.bytes;
}

#define STOP STOA__WIRE__REASON__REASON_STOP
#define LENGTH STOA__WIRE__REASON__REASON_LENGTH
#define CANCELLED STOA__WIRE__REASON__REASON_CANCELLED
#define CHAT(fields) API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" fields "}"
#define COMPLETION(fields) API_COMPLETION, "{\"prompt\":\"hi\"" fields "}"

#define CHUNK_HEAD "data: {\"id\": \"chatcmpl-1\", \"object\": \"chat.completion.chunk\", \"created\": 1700000001, \"model\": \"tiny\", " \
                   "\"system_fingerprint\": \"f00d\", \"choices\": ["
#define CHUNK(index, delta, reason) CHUNK_HEAD "{\"index\": " index ", \"delta\": {" delta "}, \"logprobs\": null, \"finish_reason\": " \
    "" reason "}]}\n\n"
#define TEXT_HEAD "\"id\": \"cmpl-1\", \"object\": \"text_completion\", \"created\": 1700000001, \"model\": \"tiny\", " \
                  "\"system_fingerprint\": \"f00d\", \"choices\": ["
#define TEXT(text, reason) "{" TEXT_HEAD "{\"index\": 0, \"text\": \"" text "\", \"logprobs\": null, \"finish_reason\": " reason "}]"
#define USAGE(n_prompt, n, total, cached) ", \"usage\": {\"prompt_tokens\": " n_prompt ", \"completion_tokens\": " n ", " \
    "\"total_tokens\": " total \
                                  ", \"prompt_tokens_details\": {\"cached_tokens\": " cached "}}"
#define DONE "data: [DONE]\n\n"

static void test_bodies(void)
{
    struct answer *a = open_answer(CHAT(""));
    check_begin("a whole chat; CT-05: the begin token that template and tokenizer both want is counted once");
    take_text(a, 0, 0, "Yes");
    check(!answer_is_over(a));
    check(!answer_finish_reason(a, 0));
    finish(a, 0, STOP);
    check(answer_is_over(a));
    check_text(whole(a), "{\"id\": \"chatcmpl-1\", \"object\": \"chat.completion\", \"created\": 1700000001, \"model\": \"tiny\", "
                         "\"system_fingerprint\": \"f00d\", "
               "\"choices\": [{\"index\": 0, \"message\": {\"role\": \"assistant\", \"content\": \"Yes\", \"refusal\": null}, "
               "\"logprobs\": null, \"finish_reason\": \"stop\"}]"
               USAGE("11", "3", "14", "2") "}");
    answer_close(a);

    check_begin("a whole completion");
    a = open_answer(COMPLETION(",\"echo\":true"));
    take_text(a, 0, 0, " x");
    finish(a, 0, LENGTH);
    check_text(whole(a), TEXT("hi x", "\"length\"") USAGE("3", "2", "5", "2") "}");
    answer_close(a);

    check_begin("max_tokens 0 is over at once");
    a = open_answer(COMPLETION(",\"echo\":true,\"max_tokens\":0"));
    check(answer_is_over(a));
    check_text(whole(a), TEXT("hi", "\"length\"") USAGE("3", "0", "3", "0") "}");
    answer_close(a);
    a = open_answer(COMPLETION(",\"echo\":true,\"max_tokens\":0"));
    check_text(streamed(a), "data: " TEXT("hi", "\"length\"") "}\n\n" DONE);
    check(answer_stream_is_over(a));
    answer_close(a);

    check_begin("ids");
    a = open_answer(COMPLETION(",\"return_token_ids\":true"));
    take_text(a, 0, 0, "A");
    finish(a, 0, LENGTH);
    check_text(whole(a), "{" TEXT_HEAD "{\"index\": 0, \"text\": \"A\", \"logprobs\": null, \"finish_reason\": \"length\", "
                                       "\"prompt_token_ids\": [256, 104, 105], "
               "\"token_ids\": [65]}]" USAGE("3", "1", "4", "2") "}");
    answer_close(a);
}

static void test_events(void)
{
    struct answer *a = open_answer(CHAT(",\"stream\":true"));
    check_begin("events of a chat: the role with the first token");
    check_text(streamed(a), "");
    check(!answer_has_begun(a));
    take_text(a, 0, 0, "He");
    check_text(streamed(a), CHUNK("0", "\"role\": \"assistant\", \"content\": \"He\"", "null"));
    check(answer_has_begun(a));
    take_text(a, 0, 2, "l");
    check_text(streamed(a), CHUNK("0", "\"content\": \"l\"", "null"));
    check_text(streamed(a), "");
    take_text(a, 0, 3, "p");
    finish(a, 0, STOP);
    check(!answer_stream_is_over(a));
    check_text(streamed(a), CHUNK("0", "\"content\": \"p\"", "\"stop\"") DONE);
    check(answer_stream_is_over(a));
    check_text(streamed(a), "");
    answer_close(a);

    check_begin("an empty answer has a role too");
    a = open_answer(CHAT(",\"stream\":true"));
    finish(a, 0, STOP);
    check_text(streamed(a), CHUNK("0", "\"role\": \"assistant\", \"content\": \"\"", "\"stop\"") DONE);
    answer_close(a);

    check_begin("the end alone");
    a = open_answer(CHAT(",\"stream\":true"));
    take_text(a, 0, 0, "a");
    streamed(a);
    finish(a, 0, LENGTH);
    check_text(streamed(a), CHUNK("0", "", "\"length\"") DONE);
    answer_close(a);

    check_begin("SS-06: usage");
    a = open_answer(COMPLETION(",\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    take_text(a, 0, 0, "a");
    check_text(streamed(a), "data: " TEXT("a", "null") ", \"usage\": null}\n\n");
    finish(a, 0, LENGTH);
    check_text(streamed(a), "data: " TEXT("", "\"length\"") ", \"usage\": null}\n\n" "data: {" TEXT_HEAD "]" USAGE("3", "1", "4",
            "2") "}\n\n" DONE);
    answer_close(a);

    check_begin("a stop string ends a choice at once, its usage waits for the replica");
    a = open_answer(COMPLETION(",\"stream\":true,\"stop\":\"b\",\"stream_options\":{\"include_usage\":true}"));
    check(!take(a, 0, 0, 'a'));
    check(take(a, 0, 1, 'b'));
    check(!take(a, 0, 2, 'c'));
    check_text(answer_finish_reason(a, 0), "stop");
    check(!answer_is_over(a));
    check_text(streamed(a), "data: " TEXT("a", "\"stop\"") ", \"usage\": null}\n\n");
    finish(a, 0, CANCELLED);
    check(answer_is_over(a));
    check_text(streamed(a), "data: {" TEXT_HEAD "]" USAGE("3", "2", "5", "2") "}\n\n" DONE);
    answer_close(a);

    check_begin("choices take turns");
    a = open_answer(CHAT(",\"stream\":true,\"n\":2"));
    take_text(a, 1, 0, "B");
    take_text(a, 0, 0, "A");
    check_text(streamed(a), CHUNK("0", "\"role\": \"assistant\", \"content\": \"A\"", "null") CHUNK("1",
            "\"role\": \"assistant\", \"content\": \"B\"", "null"));
    finish(a, 1, STOP);
    check_text(streamed(a), CHUNK("1", "", "\"stop\""));
    finish(a, 0, LENGTH);
    check_text(streamed(a), CHUNK("0", "", "\"length\"") DONE);
    check_int(answer_usage(a).completion_tokens, 2);
    check_int(answer_usage(a).prompt_tokens, 11);
    answer_close(a);

    check_begin("no more than was asked for at once");
    a = open_answer(CHAT(",\"stream\":true,\"n\":2"));
    struct buffer out = { 0 };
    take_text(a, 0, 0, "A");
    take_text(a, 1, 0, "B");
    check(answer_stream(a, &out, 1));
    check_int(out.size, strlen(CHUNK("0", "\"role\": \"assistant\", \"content\": \"A\"", "null")));
    check(answer_stream(a, &out, 1));
    check_int(out.size, 2 * strlen(CHUNK("0", "\"role\": \"assistant\", \"content\": \"A\"", "null")));
    check(!answer_stream(a, &out, 1));
    buffer_release(&out);
    answer_close(a);
}

static void test_characters(void)
{
    struct answer *a = open_answer(CHAT(",\"stream\":true"));
    check_begin("SS-01: a character of four tokens comes whole");
    take_text(a, 0, 0, "\xf0\x9f\x98");
    check_text(streamed(a), "");
    take_text(a, 0, 3, "\x80!");
    check_text(streamed(a), CHUNK("0", "\"role\": \"assistant\", \"content\": \"\xf0\x9f\x98\x80!\"", "null"));
    check_begin("SS-02: what is no character is U+FFFD, and a cut one is flushed once");
    take_text(a, 0, 5, "\xc0\x80x\xe4\xb8");
    check_text(streamed(a), CHUNK("0", "\"content\": \"\xef\xbf\xbd\xef\xbf\xbdx\"", "null"));
    finish(a, 0, LENGTH);
    check_text(streamed(a), CHUNK("0", "\"content\": \"\xef\xbf\xbd\"", "\"length\"") DONE);
    answer_close(a);

    check_begin("special tokens are no text, unless asked for");
    a = open_answer(COMPLETION(""));
    take(a, 0, 0, TINY_USER);
    take(a, 0, 1, 'x');
    finish(a, 0, LENGTH);
    check_text(whole(a), TEXT("x", "\"length\"") USAGE("3", "2", "5", "2") "}");
    answer_close(a);
    a = open_answer(COMPLETION(",\"skip_special_tokens\":false,\"stop\":\">x\""));
    take(a, 0, 0, TINY_USER);
    check(take(a, 0, 1, 'x'));
    finish(a, 0, CANCELLED);
    check_text(whole(a), TEXT("<u", "\"stop\"") USAGE("3", "2", "5", "2") "}");
    answer_close(a);
}

/* What a slow client has left to wait, the loop's thread must not write in one go. */
static void test_pieces(void)
{
    enum { N = 40, MOST_BYTES = 2048 };
    static const char *const more[] = { ",\"logprobs\":true,\"top_logprobs\":2", ",\"return_token_ids\":true" };
    struct buffer out = { 0 };
    for (size_t m = 0; m < COUNT_OF(more); m++) {
        char body[256];
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,\"n\":3,\"max_tokens\":%d%s}", N, more[m]);
        struct answer *a = open_answer(API_CHAT, body);
        check_begin("%d tokens that have waited come in small pieces%s", N, more[m]);
        for (uint32_t i = 0; i < N; i++)
            for (uint32_t c = 0; c < 3; c++)
                take(a, c, i, 'x');
        size_t largest = 0, n_tokens = 0, n_events = 0;
        for (bool goes_on = true; goes_on;) {
            out.size = 0;
            goes_on = answer_stream(a, &out, 1);
            largest = MAX(largest, out.size);
            n_events += out.size > 0;
            buffer_add(&out, "", 1);
            for (const char *at = strstr(out.bytes, "\"content\": \"x"); at && at[12] == 'x'; at++)
                n_tokens++;
        }
        check_int(n_tokens, 3 * N);
        check_int(n_events, 3 * N / 4);
        check(largest < MOST_BYTES);
        answer_close(a);
    }
    buffer_release(&out);
}

static void test_logprobs(void)
{
    struct answer *a = open_answer(CHAT(",\"logprobs\":true,\"top_logprobs\":2,\"stream\":true"));
    check_begin("OA-07: logprobs of a chat, with the true bytes");
    take_text(a, 0, 0, "\xc3\xa9");
    check_text(streamed(a), CHUNK_HEAD "{\"index\": 0, \"delta\": {\"role\": \"assistant\", \"content\": \"\xc3\xa9\"}, \"logprobs\": "
                                       "{\"content\": ["
        "{\"token\": \"\xef\xbf\xbd\", \"logprob\": -0.5, \"bytes\": [195], \"top_logprobs\": [{\"token\": \"\xef\xbf\xbd\", \"logprob\": "
        "-0.5, \"bytes\": [195]}, "
        "{\"token\": \"\xef\xbf\xbd\", \"logprob\": -1.25, \"bytes\": [196]}]}, "
        "{\"token\": \"\xef\xbf\xbd\", \"logprob\": -0.5, \"bytes\": [169], \"top_logprobs\": [{\"token\": \"\xef\xbf\xbd\", \"logprob\": "
        "-0.5, \"bytes\": [169]}, "
        "{\"token\": \"\xef\xbf\xbd\", \"logprob\": -1.25, \"bytes\": [170]}]}], \"refusal\": null}, \"finish_reason\": null}]}\n\n");
    answer_close(a);

    check_begin("OA-03: no top count, an empty list");
    a = open_answer(CHAT(",\"logprobs\":true,\"stream\":true"));
    take_text(a, 0, 0, "a");
    check_text(streamed(a), CHUNK_HEAD "{\"index\": 0, \"delta\": {\"role\": \"assistant\", \"content\": \"a\"}, \"logprobs\": "
                                       "{\"content\": ["
               "{\"token\": \"a\", \"logprob\": -0.5, \"bytes\": [97], \"top_logprobs\": []}], \"refusal\": null}, \"finish_reason\": "
               "null}]}\n\n");
    answer_close(a);

    check_begin("logprobs of a completion");
    a = open_answer(COMPLETION(",\"logprobs\":2"));
    take_text(a, 0, 0, "\xc3\xa9x");
    take(a, 0, 3, TINY_USER);
    finish(a, 0, LENGTH);
    check_text(whole(a), "{" TEXT_HEAD "{\"index\": 0, \"text\": \"\xc3\xa9x\", \"logprobs\": {\"tokens\": [\"bytes:\\\\xc3\", "
                                       "\"bytes:\\\\xa9\", \"x\", \"<u>\"], "
        "\"token_logprobs\": [-0.5, -0.5, -0.5, -0.5], \"top_logprobs\": [{\"bytes:\\\\xc3\": -0.5, \"bytes:\\\\xc4\": -1.25}, "
        "{\"bytes:\\\\xa9\": -0.5, \"bytes:\\\\xaa\": -1.25}, {\"x\": -0.5, \"y\": -1.25}, {\"<u>\": -0.5, \"<a>\": -1.25}], "
        "\"text_offset\": [0, 0, 1, 2]}, \"finish_reason\": \"length\"}]" USAGE("3", "4", "7", "2") "}");
    answer_close(a);
}

/* A token begins at the character that its first byte belongs to. */
static void test_text_offsets(void)
{
    static const struct { const char *name, *text, *want; } rows[] = {
        { "a character a token",                     "ab",              "[0, 1]" },
        { "a character of two",                      "\xc3\xa9x",       "[0, 0, 1]" },
        { "one that is not finished",                "\xc3x",           "[0, 1]" },
        { "of four bytes, not finished",             "a\xf0\x9f\x98" "b", "[0, 1, 1, 1, 2]" },
        { "two that are not finished",               "\xc3\xc3\xa9",    "[0, 1, 1]" },
        { "no beginning of one",                     "\xff\xffz",       "[0, 1, 2]" },
        { "cut at the end",                          "a\xe4\xb8",       "[0, 1, 1]" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct answer *a = open_answer(COMPLETION(",\"logprobs\":0"));
        check_begin("text_offset: %s", rows[i].name);
        take_text(a, 0, 0, rows[i].text);
        finish(a, 0, LENGTH);
        const char *found = strstr(whole(a), "\"text_offset\": ");
        char got[64] = "";
        if (check(found))
            snprintf(got, sizeof got, "%.*s", (int)strlen(rows[i].want), found + strlen("\"text_offset\": "));
        check_text(got, rows[i].want);
        answer_close(a);
    }
}

static void test_submit(void)
{
    struct answer *a = open_answer(API_COMPLETION, "{\"prompt\":[[1,2],[3]],\"n\":2,\"max_tokens\":9,\"min_tokens\":1,\"temperature\":0.5,"
                                                   "\"top_k\":7,\"top_p\":0.25,"
        "\"min_p\":0.125,\"repetition_penalty\":1.5,\"frequency_penalty\":1,\"presence_penalty\":-1,\"logit_bias\":{\"5\":-2},\"seed\":77,"
        "\"logprobs\":3,"
        "\"priority\":-4,\"cache_salt\":\"salt\",\"stop_token_ids\":[8]}");
    Stoa__Wire__Submit s;
    check_begin("what the replica is asked for");
    check_int(answer_n_choices(a), 4);
    answer_submit(a, 3, &s);
    check_int(s.n_prompt, 1);
    check_int(s.prompt[0], 3);
    check_int(s.n_so_far, 0);
    check_int(s.max_tokens, 9);
    check_int(s.min_tokens, 1);
    check_int(s.n_stop_ids, 3);
    check_int(s.stop_ids[0], 8);
    check_int(s.stop_ids[2], TINY_TURN);
    check(s.logprobs);
    check_int(s.top_logprobs, 3);
    check_int(s.priority, -4);
    check(s.cache_salt.len == 4 && !memcmp(s.cache_salt.data, "salt", 4));
    check_int(s.sampling->choice, 1);
    check_int(s.sampling->seed, 77);
    check_int(s.sampling->top_k, 7);
    check_int((int)(8 * s.sampling->temperature), 4);
    check_int((int)(8 * s.sampling->top_p), 2);
    check_int((int)(8 * s.sampling->min_p), 1);
    check_int((int)(8 * s.sampling->repetition_penalty), 12);
    check_int((int)(8 * s.sampling->frequency_penalty), 8);
    check_int((int)(8 * s.sampling->presence_penalty), -8);
    check_int(s.sampling->n_bias, 1);
    check_int(s.sampling->bias[0]->id, 5);
    check_int((int)s.sampling->bias[0]->add, -2);
    check_begin("and after some tokens, again");
    take_text(a, 3, 0, "xy");
    answer_submit(a, 3, &s);
    check_int(s.n_so_far, 2);
    check_int(s.so_far[1], 'y');
    check(!take(a, 3, 1, 'z'));                         /* what comes twice is dropped */
    check(!take(a, 3, 3, 'z'));
    answer_submit(a, 3, &s);
    check_int(s.n_so_far, 2);
    size_t n_bytes = stoa__wire__submit__get_packed_size(&s);
    check(n_bytes > 50);
    answer_close(a);
}

static void test_failures(void)
{
    static const struct { Stoa__Wire__Reason reason; bool is_full; int status; const char *want; } rows[] = {
        { STOA__WIRE__REASON__REASON_FAILED, false, 500, "{\"error\": {\"message\": \"a rank died\", \"type\": \"server_error\", "
                                                         "\"param\": null, \"code\": null}}" },
        { STOA__WIRE__REASON__REASON_CANCELLED, false, 500, "{\"error\": {\"message\": \"a rank died\", \"type\": \"server_error\", "
                                                            "\"param\": null, \"code\": null}}" },
        { STOA__WIRE__REASON__REASON_REFUSED, false, 400, "{\"error\": {\"message\": \"a rank died\", \"type\": \"invalid_request_error\", "
                                                          "\"param\": null, \"code\": null}}" },
        { STOA__WIRE__REASON__REASON_REFUSED, true, 429, "{\"error\": {\"message\": \"a rank died\", \"type\": \"rate_limit_error\", "
                                                         "\"param\": null, \"code\": \"overloaded\"}}" },
        { STOA__WIRE__REASON__REASON_TIMEOUT, false, 503,
          "{\"error\": {\"message\": \"the request waited too long for its turn\", \"type\": \"service_unavailable_error\", \"param\": null, \"code\": "
          "\"timeout\"}}" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct answer *a = open_answer(CHAT(",\"stream\":true,\"n\":2"));
        Stoa__Wire__Finish end = STOA__WIRE__FINISH__INIT;
        struct buffer want = { 0 }, body = { 0 };
        check_begin("SS-09: failure %zu", i);
        take_text(a, 0, 0, "a");
        streamed(a);
        end.reason = rows[i].reason;
        end.is_full = rows[i].is_full;
        end.error = "a rank died";
        answer_take_finish(a, 1, &end);
        take_text(a, 0, 1, "b");
        check(answer_is_over(a));
        check(answer_error(a) && answer_error(a)->status == rows[i].status);
        buffer_printf(&want, "data: %s\n\n", rows[i].want);
        check_text(streamed(a), want.bytes);
        check(answer_stream_is_over(a));
        api_write_error(&body, answer_error(a));
        check_text(body.bytes, rows[i].want);
        buffer_release(&want);
        buffer_release(&body);
        answer_close(a);
    }
    check_begin("a replica that dies when all has been said changes nothing");
    struct answer *a = open_answer(CHAT(",\"stop\":\"b\""));
    struct api_error error = { .status = 500, .type = "server_error", .message = "gone" };
    take_text(a, 0, 0, "ab");
    answer_fail(a, &error);
    check(answer_is_over(a) && !answer_error(a));
    answer_close(a);
}

static void test_stop_strings(void)
{
    static const struct { const char *name, *stops, *text, *want; uint32_t n_tokens; const char *held; } rows[] = {
        { "none",                          "[]",                   "abc",       "abc",  3, "abc" },
        { "a whole one",                   "\"b\"",                "abc",       "a",    2, NULL },
        { "across tokens",                 "\"bcd\"",              "abcde",     "a",    4, NULL },
        { "what only begins like one",     "\"bcd\"",              "abce",      "abce", 4, "abce" },
        { "a beginning at the end",        "\"bcd\"",              "abc",       "abc",  3, "a" },
        { "one that overlaps itself",      "\"aab\"",              "aaab",      "a",    4, NULL },
        { "the first that is whole",       "[\"cd\",\"bcdx\"]",    "abcdx",     "ab",   4, NULL },
        { "the longest of those",          "[\"d\",\"bcd\"]",      "abcd",      "a",    4, NULL },
        { "one inside another",            "[\"abcx\",\"bc\"]",    "abc",       "a",    3, NULL },
        { "of several bytes a character",  "\"\xc3\xa9\"",         "a\xc3\xa9", "a",    3, NULL },
        { "half a character",              "\"\xc3\xa9\"",         "a\xc3\xa8", "a\xc3\xa8", 3, "a\xc3\xa8" },
        { "at once",                       "\"a\"",                "a",         "",     1, NULL },
        { "one before min_tokens",         "\"b\",\"min_tokens\":3", "abab",     "aba",  4, NULL },
        { "a beginning before them",       "\"ba\",\"min_tokens\":2", "abab",    "abab", 4, "aba" },
        { "U+FFFD, of a character cut",    "\"\xef\xbf\xbd\"",     "a\xc3",     "a",    2, "a" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char body[256];
        struct buffer want = { 0 };
        snprintf(body, sizeof body, "{\"prompt\":\"hi\",\"stop\":%s}", rows[i].stops);
        struct answer *a = open_answer(API_COMPLETION, body);
        check_begin("stop strings: %s", rows[i].name);
        take_text(a, 0, 0, rows[i].text);
        if (rows[i].held) {                             /* not over yet: what may be sent now */
            buffer_printf(&want, "data: " TEXT("%s", "null") "}\n\n", rows[i].held);
            check_text(streamed(a), want.bytes);
            want.size = 0;
        }
        finish(a, 0, LENGTH);
        check_int(answer_usage(a).completion_tokens, rows[i].n_tokens);
        if (!rows[i].held) {
            buffer_printf(&want, TEXT("%s", "\"stop\"") USAGE("3", "%u", "%u", "2") "}", rows[i].want, rows[i].n_tokens,
                          rows[i].n_tokens + 3);
            check_text(whole(a), want.bytes);
        }
        buffer_release(&want);
        answer_close(a);
    }
}

/* ---- any tokens, any cuts, any stop strings, against the plainest way ---- */

static uint32_t seed = 1;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(seed >> 8) * n >> 24);
}

/* Few different bytes, so that strings match; some of them parts of characters. */
static const unsigned char alphabet[] = { 'a', 'b', 'a', 'b', 'c', 0xc3, 0xa9, 0xf0, 0x9f, 0x98, 0x80, 0xff };
static const char *const stop_pieces[] = { "a", "b", "ab", "c", "\xc3\xa9", "aab", "\xf0\x9f\x98\x80", "\xef\xbf\xbd" };

struct expected {
    char text[1024];
    uint32_t n_tokens;
    bool stopped;
};

static bool ends_with_stop(const char *text, size_t n, char stops[][64], uint32_t n_stops, size_t *n_match)
{
    *n_match = 0;
    for (uint32_t i = 0; i < n_stops; i++) {
        size_t n_stop = strlen(stops[i]);
        if (n_stop <= n && !memcmp(text + n - n_stop, stops[i], n_stop))
            *n_match = MAX(*n_match, n_stop);
    }
    return *n_match;
}

/* After each token, looks through all text from its first byte. */
static void expect(struct expected *e, const uint8_t *tokens, uint32_t n, char stops[][64], uint32_t n_stops, bool include)
{
    struct utf8_stream stream = { 0 };
    struct buffer text = { 0 };
    size_t n_match;
    *e = (struct expected){ .n_tokens = n };
    for (uint32_t k = 0; k <= n && !e->stopped; k++) {
        if (k < n)
            utf8_stream_add(&stream, (const char *)&tokens[k], 1, &text);
        else
            utf8_stream_end(&stream, &text);
        for (size_t end = 1; end <= text.size && !e->stopped; end++)
            if (ends_with_stop(text.bytes, end, stops, n_stops, &n_match)) {
                e->stopped = true;
                e->n_tokens = MIN(k + 1, n);
                text.size = end - (include ? 0 : n_match);
            }
    }
    snprintf(e->text, sizeof e->text, "%.*s", (int)text.size, text.bytes ? text.bytes : "");
    buffer_release(&text);
}

/* Adds what the events hold of each choice. */
static void join_events(const char *events, struct buffer *text, uint32_t *n_logprobs, const char **reason)
{
    for (const char *at = events; *at;) {
        const char *end = strstr(at, "\n\n");
        if (!check(end && !strncmp(at, "data: ", 6)))
            return;
        if (strncmp(at, "data: [DONE]", 12)) {
            json_t *event = json_loadb(at + 6, (size_t)(end - at - 6), JSON_REJECT_DUPLICATES, NULL);
            json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
            size_t index = (size_t)json_integer_value(json_object_get(choice, "index"));
            const char *piece = json_string_value(json_object_get(choice, "text"));
            check(piece && utf8_is_valid(piece, strlen(piece)));
            buffer_add_text(&text[index], piece ? piece : "");
            n_logprobs[index] += (uint32_t)json_array_size(json_object_get(json_object_get(choice, "logprobs"), "tokens"));
            check(!reason[index]);
            if (json_is_string(json_object_get(choice, "finish_reason")))
                reason[index] = !strcmp(json_string_value(json_object_get(choice, "finish_reason")), "stop") ? "stop" : "length";
            json_decref(event);
        }
        at = end + 2;
    }
}

#define MOST_CHOICES 3
#define MOST_TOKENS 40

static void check_random(uint32_t which)
{
    uint32_t n = 1 + random_below(MOST_CHOICES), n_stops = random_below(4), n_tokens = 1 + random_below(MOST_TOKENS),
        at[MOST_CHOICES] = { 0 };
    bool include = random_below(2), logprobs = random_below(2);
    char stops[4][64];
    uint8_t tokens[MOST_CHOICES][MOST_TOKENS];
    struct buffer body = { 0 }, joined[MOST_CHOICES] = { { 0 } };
    struct expected want[MOST_CHOICES];
    uint32_t n_logprobs[MOST_CHOICES] = { 0 };
    const char *reason[MOST_CHOICES] = { 0 };

    buffer_printf(&body, "{\"prompt\":[5],\"n\":%u,\"max_tokens\":%u,\"include_stop_str_in_output\":%s,\"logprobs\":%s,\"stop\":[", n,
                  n_tokens,
                  include ? "true" : "false", logprobs ? "2" : "null");
    for (uint32_t i = 0; i < n_stops; i++) {
        stops[i][0] = 0;
        for (uint32_t k = 1 + random_below(3); k; k--)
            strcat(stops[i], stop_pieces[random_below(COUNT_OF(stop_pieces))]);
        buffer_printf(&body, "%s\"%s\"", i ? "," : "", stops[i]);
    }
    buffer_add_text(&body, "]}");
    struct answer *stream = open_answer(API_COMPLETION, body.bytes), *all = open_answer(API_COMPLETION, body.bytes);
    for (uint32_t c = 0; c < n; c++) {
        for (uint32_t i = 0; i < n_tokens; i++)
            tokens[c][i] = alphabet[random_below(COUNT_OF(alphabet))];
        expect(&want[c], tokens[c], n_tokens, stops, n_stops, include);
    }
    check_begin("random %u", which);
    for (uint32_t left = n; left;) {
        uint32_t c = random_below(n);
        if (at[c] > n_tokens)
            continue;
        if (at[c] == n_tokens) {
            left--;
            at[c]++;
            finish(stream, c, LENGTH);
            finish(all, c, LENGTH);
        } else {
            take(stream, c, at[c], tokens[c][at[c]]);
            take(all, c, at[c], tokens[c][at[c]]);
            at[c]++;
        }
        if (random_below(3) == 0)
            join_events(streamed(stream), joined, n_logprobs, reason);
    }
    join_events(streamed(stream), joined, n_logprobs, reason);
    check(answer_stream_is_over(stream));
    json_t *one = json_loads(whole(all), JSON_REJECT_DUPLICATES, NULL);
    for (uint32_t c = 0; c < n; c++) {
        json_t *choice = json_array_get(json_object_get(one, "choices"), c);
        buffer_add_text(&joined[c], "");
        bool ok = check_text(joined[c].bytes, want[c].text);
        ok &= check_text(json_string_value(json_object_get(choice, "text")), want[c].text);
        ok &= check_text(reason[c], want[c].stopped ? "stop" : "length");
        ok &= check_int(n_logprobs[c], logprobs ? want[c].n_tokens : 0);
        ok &= check_int(json_array_size(json_object_get(json_object_get(choice, "logprobs"), "tokens")), logprobs ? want[c].n_tokens : 0);
        if (!ok)
            printf("  body %s\n", body.bytes);
        buffer_release(&joined[c]);
    }
    json_decref(one);
    buffer_release(&body);
    answer_close(stream);
    answer_close(all);
}

int main(void)
{
    tiny_model_open(&tiny, 64);
    test_bodies();
    test_events();
    test_characters();
    test_pieces();
    test_logprobs();
    test_text_offsets();
    test_submit();
    test_failures();
    test_stop_strings();
    for (uint32_t i = 0; i < 1000; i++)
        check_random(i);
    tiny_model_close(&tiny);
    return check_done();
}

/* test_api.c: bodies of the API: what each asks for, and what is refused, by name. */
#include "front/api_fields.h"
#include "front/front_impl.h"
#include "tests/front/tiny_model.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

#define CONTEXT 64

static struct tiny_model tiny;

/* "STATUS CODE PARAM: MESSAGE" of a refusal, "" when it was read. */
static const char *read_body(enum api_kind kind, const char *body, size_t n_bytes, struct api_request **out)
{
    static char text[1024];
    struct api_error error = { 0 };
    *out = NULL;
    if (api_read(out, kind, &tiny.api, body, n_bytes, &error) == 0)
        return "";
    snprintf(text, sizeof text, "%d %s %s: %s", error.status, error.code ? error.code : "-", *error.param ? error.param : "-",
             error.message);
    return text;
}

/* Ids as text, special tokens by their names. */
static char *prompt_text(const struct api_prompt *prompt)
{
    static char text[4096];
    size_t n = 0, n_bytes;
    for (size_t i = 0; i < prompt->n_ids; i++) {
        const char *bytes = tokenizer_bytes(tiny.tokenizer, prompt->ids[i], true, &n_bytes);
        bool special = prompt->ids[i] >= 256;           /* "[u]", so that it differs from a text "<u>" */
        n += (size_t)snprintf(text + n, sizeof text - n, special ? "[%.*s]" : "%.*s", (int)(special ? n_bytes - 2 : n_bytes),
                              bytes + special);
    }
    return text;
}

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define CHAT(fields) API_CHAT, "{" USER "," fields "}"
#define COMPLETION(fields) API_COMPLETION, "{\"prompt\":\"hi\"," fields "}"
#define MESSAGES(list) API_CHAT, "{\"messages\":" list "}"
#define PROMPT(prompt) API_COMPLETION, "{\"prompt\":" prompt "}"

struct refusal { enum api_kind kind; const char *body, *want; };

static void check_refused(const struct refusal *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct api_request *request;
        check_begin("refused: %s", rows[i].body);
        check_text(read_body(rows[i].kind, rows[i].body, strlen(rows[i].body), &request), rows[i].want);
        api_request_close(request);
    }
}

static void test_refused_messages(void)
{
    static const struct refusal rows[] = {
        { API_CHAT, "", "400 - -: no JSON value at byte 0" },
        { API_CHAT, "[]", "400 - -: the body must be a JSON object" },
        { API_CHAT, "\"x\"", "400 - -: the body must be a JSON object" },
        /* OA-01, OA-02 */
        { API_CHAT, "{}", "400 - messages: messages must be an array with at least one message" },
        { MESSAGES("[]"), "400 - messages: messages must be an array with at least one message" },
        { MESSAGES("null"), "400 - messages: messages must be an array with at least one message" },
        { MESSAGES("5"), "400 - messages: messages must be an array" },
        { MESSAGES("[null]"), "400 - messages[0]: messages[0] must be an object" },
        { MESSAGES("[42]"), "400 - messages[0]: messages[0] must be an object" },
        { MESSAGES("[{}]"), "400 - messages[0].role: messages[0].role must be a string" },
        { MESSAGES("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"robot\",\"content\":\"hi\"}]"),
          "400 - messages[1].role: messages[1].role must be system, developer, user, assistant or tool" },
        { MESSAGES("[{\"role\":\"user\"}]"), "400 - messages[0].content: messages[0].content is missing" },
        { MESSAGES("[{\"role\":\"user\",\"content\":null}]"), "400 - messages[0].content: messages[0].content is missing" },
        { MESSAGES("[{\"role\":\"user\",\"content\":7}]"), "400 - messages[0].content: messages[0].content must be a string or an array of "
                                                           "parts" },
        /* CT-07, SE-04 */
        { MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"image_url\","
                   "\"image_url\":{\"url\":\"http://127.0.0.1:1/\"}}]}]"),
          "400 - messages[0].content[1]: messages[0].content[1] has the type \"image_url\"; this model reads text only" },
        { MESSAGES("[{\"role\":\"user\",\"content\":[\"x\"]}]"), "400 - messages[0].content[0]: messages[0].content[0] must be an object "
                                                                 "with a type" },
        { MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]"),
         "400 - messages[0].content[0]: messages[0].content[0] must have a text" },
        /* calls that no template could print */
        { MESSAGES("[{\"role\":\"assistant\",\"tool_calls\":\"f\"}]"),
         "400 - messages[0].tool_calls: messages[0].tool_calls must be an array" },
        { MESSAGES("[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}},"
                   "{\"function\":{\"name\":\"f\"}}]}]"),
          "400 - messages[0].tool_calls[1]: messages[0].tool_calls[1] must have a function with a name and arguments" },
        { MESSAGES("[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":null}}]}]"),
          "400 - messages[0].tool_calls[0]: messages[0].tool_calls[0] must have a function with a name and arguments" },
        { MESSAGES("[{\"role\":\"assistant\",\"tool_calls\":[5]}]"),
          "400 - messages[0].tool_calls[0]: messages[0].tool_calls[0] must have a function with a name and arguments" },
    };
    check_refused(rows, COUNT_OF(rows));
}

static void test_refused_values(void)
{
    static const struct refusal rows[] = {
        /* OA-03 */
        { CHAT("\"top_logprobs\":3"), "400 - top_logprobs: top_logprobs needs logprobs to be true" },
        { CHAT("\"logprobs\":1"), "400 - logprobs: logprobs must be true or false" },
        { COMPLETION("\"logprobs\":true"), "400 - logprobs: logprobs must be an integer" },
        /* OA-09 */
        { COMPLETION("\"echo\":true,\"logprobs\":1"), "400 - echo: echo with logprobs is not supported: the prompt has none here" },
        /* OA-11 */
        { CHAT("\"logit_bias\":{\"999999\":-100}"), "400 - logit_bias: logit_bias: \"999999\" is no token id from 0 to 260" },
        { CHAT("\"logit_bias\":{\"261\":1}"), "400 - logit_bias: logit_bias: \"261\" is no token id from 0 to 260" },
        { CHAT("\"logit_bias\":{\"-1\":5}"), "400 - logit_bias: logit_bias: \"-1\" is no token id from 0 to 260" },
        { CHAT("\"logit_bias\":{\"abc\":1}"), "400 - logit_bias: logit_bias: \"abc\" is no token id from 0 to 260" },
        { CHAT("\"logit_bias\":{\"\":1}"), "400 - logit_bias: logit_bias: \"\" is no token id from 0 to 260" },
        { CHAT("\"logit_bias\":{\"05\":1}"), "400 - logit_bias: logit_bias: \"05\" is no token id from 0 to 260" },
        { CHAT("\"logit_bias\":{\"5\":1000}"), "400 - logit_bias: logit_bias: the bias of 5 must be a number between -100 and 100" },
        { CHAT("\"logit_bias\":{\"5\":true}"), "400 - logit_bias: logit_bias: the bias of 5 must be a number between -100 and 100" },
        { CHAT("\"logit_bias\":{\"5\":1e999}"), "400 - logit_bias: logit_bias: the bias of 5 must be a number between -100 and 100" },
        { CHAT("\"logit_bias\":[[5,1]]"), "400 - logit_bias: logit_bias must be an object" },
        /* OA-13, OA-14 */
        { CHAT("\"n\":1000000"), "400 - n: n must be between 1 and 128" },
        { COMPLETION("\"best_of\":1000000000"), "400 - best_of: best_of must be between 1 and 128" },
        { COMPLETION("\"best_of\":3,\"n\":2"), "400 - best_of: best_of must be n: choices are not picked by likelihood" },
        { CHAT("\"logprobs\":true,\"top_logprobs\":1000000000"), "400 - top_logprobs: top_logprobs must be between 0 and 20" },
        { CHAT("\"logprobs\":true,\"top_logprobs\":-1"), "400 - top_logprobs: top_logprobs must be between 0 and 20" },
        { COMPLETION("\"logprobs\":21"), "400 - logprobs: logprobs must be between 0 and 20" },
        { COMPLETION("\"prompt_logprobs\":-1"), "400 - prompt_logprobs: prompt_logprobs is not supported" },
        { COMPLETION("\"prompt_logprobs\":0"), "400 - prompt_logprobs: prompt_logprobs is not supported" },
        { CHAT("\"bad_words\":[\"a\"]"), "400 - bad_words: bad_words is not supported with this value" },
        /* OA-15 */
        { CHAT("\"temperature\":NaN"), "400 - -: no JSON value at byte 59" },
        { CHAT("\"temperature\":\"NaN\""), "400 - temperature: temperature must be a number" },
        { CHAT("\"top_p\":\"0.5\""), "400 - top_p: top_p must be a number" },
        { CHAT("\"presence_penalty\":1e999"), "400 - presence_penalty: presence_penalty must be between -2 and 2" },
        { CHAT("\"frequency_penalty\":-Infinity"), "400 - -: a minus without a number at byte 66" },
        { CHAT("\"temperature\":true"), "400 - temperature: temperature must be a number" },
        /* OA-16 */
        { CHAT("\"temperature\":-3"), "400 - temperature: temperature must be between 0 and 2" },
        { CHAT("\"temperature\":5"), "400 - temperature: temperature must be between 0 and 2" },
        { CHAT("\"top_p\":0"), "400 - top_p: top_p must be between 1e-06 and 1" },
        { CHAT("\"top_p\":7"), "400 - top_p: top_p must be between 1e-06 and 1" },
        { CHAT("\"min_p\":2"), "400 - min_p: min_p must be between 0 and 1" },
        { CHAT("\"frequency_penalty\":100"), "400 - frequency_penalty: frequency_penalty must be between -2 and 2" },
        { CHAT("\"repetition_penalty\":0"), "400 - repetition_penalty: repetition_penalty must be between 0.01 and 2" },
        { CHAT("\"max_tokens\":-1"), "400 - max_tokens: max_tokens must be between 1 and 2147483647" },
        { CHAT("\"max_tokens\":0"), "400 - max_tokens: max_tokens must be between 1 and 2147483647" },
        { CHAT("\"max_tokens\":1.5"), "400 - max_tokens: max_tokens must be an integer" },
        { CHAT("\"max_completion_tokens\":99999999999"), "400 - max_completion_tokens: max_completion_tokens must be between 1 and "
                                                         "2147483647" },
        { CHAT("\"n\":0"), "400 - n: n must be between 1 and 128" },
        { CHAT("\"n\":\"2\""), "400 - n: n must be an integer" },
        { CHAT("\"top_k\":-2"), "400 - top_k: top_k must be between -1 and 2147483647" },
        { CHAT("\"seed\":18446744073709551615"), "400 - seed: seed must be an integer" },
        { CHAT("\"seed\":9223372036854775808"), "400 - seed: seed must be an integer" },
        { CHAT("\"min_tokens\":9,\"max_tokens\":8"), "400 - min_tokens: min_tokens is more than max_tokens" },
        { CHAT("\"stream\":\"true\""), "400 - stream: stream must be true or false" },
        { CHAT("\"stream_options\":{\"include_usage\":1}"), "400 - stream_options.include_usage: stream_options.include_usage must be true "
                                                            "or false" },
        /* OA-20 */
        { PROMPT("\"12345678901234567890123456789012345678901234567890123456789012345678901234567890\""),
          "400 context_length_exceeded prompt: the context of this model has 64 tokens, and the prompt 81, which leaves no room for an "
          "answer" },
        { PROMPT("\"123456789012345678901234567890123456789012345678901234567890123\""),
          "400 context_length_exceeded prompt: the context of this model has 64 tokens, and the prompt 64, which leaves no room for an "
          "answer" },
        { MESSAGES("[{\"role\":\"user\",\"content\":\"1234567890123456789012345678901234567890123456789012345\"}]"),
          "400 context_length_exceeded messages: the context of this model has 64 tokens, and the prompt 64, which leaves no room for an "
          "answer" },
        /* OA-22 */
        { CHAT("\"stop\":\"\""), "400 - stop: a stop string must have 1 to 1024 characters" },
        { CHAT("\"stop\":[\"\"]"), "400 - stop: a stop string must have 1 to 1024 characters" },
        { CHAT("\"stop\":[\"a\",\"\"]"), "400 - stop: a stop string must have 1 to 1024 characters" },
        { CHAT("\"stop\":[5]"), "400 - stop: stop must be a string or an array of strings" },
        { CHAT("\"stop\":{}"), "400 - stop: stop must be a string or an array of strings" },
        { CHAT("\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]"),
          "400 - stop: stop has 17 strings, the limit is 16" },
        { CHAT("\"stop_token_ids\":[5,261]"), "400 - stop_token_ids: stop_token_ids[1] is 261, and token ids go from 0 to 260" },
        { CHAT("\"stop_token_ids\":[\"5\"]"), "400 - stop_token_ids: stop_token_ids[0] must be a token id" },
    };
    check_refused(rows, COUNT_OF(rows));
}

static void test_refused_names_and_templates(void)
{
    static const struct refusal rows[] = {
        /* names */
        { CHAT("\"model\":7"), "400 - model: model must be a string" },
        { CHAT("\"model\":\"\""), "400 - model: model must have 1 to 256 characters" },
        { CHAT("\"model\":\".\""), "400 - model: model must be a plain name: letters, digits and -_.:+@ with / between" },
        { CHAT("\"model\":\"..%2Foutside\""), "400 - model: model must be a plain name: letters, digits and -_.:+@ with / between" },
        { CHAT("\"model\":\"a/../../outside\""), "400 - model: model must be a plain name: letters, digits and -_.:+@ with / between" },
        { CHAT("\"model\":\"a/.b\""), "400 - model: model must be a plain name: letters, digits and -_.:+@ with / between" },
        { CHAT("\"model\":\"a/\""), "400 - model: model must be a plain name: letters, digits and -_.:+@ with / between" },
        { CHAT("\"model\":\"a//b\""), "400 - model: model must be a plain name: letters, digits and -_.:+@ with / between" },
        { CHAT("\"model\":\"/etc/passwd\""), "400 - model: model must be a plain name: letters, digits and -_.:+@ with / between" },
        { CHAT("\"model\":\"a\\u0000b\""), "400 - model: model must be a plain name: letters, digits and -_.:+@ with / between" },
        { CHAT("\"cache_salt\":\"\""), "400 - cache_salt: cache_salt must have 1 to 256 characters" },
        /* what comes later */
        { CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"),
         "400 - tools: tools is not supported with this value" },
        { CHAT("\"tool_choice\":\"auto\""), "400 - tool_choice: tool_choice is not supported with this value" },
        { CHAT("\"tool_choice\":{\"type\":\"function\"}"), "400 - tool_choice: tool_choice is not supported with this value" },
        { CHAT("\"functions\":[{\"name\":\"f\"}]"), "400 - functions: functions is not supported with this value" },
        { CHAT("\"response_format\":{\"type\":\"json_object\"}"), "400 - response_format: response_format is not supported with this "
                                                                  "value" },
        { CHAT("\"modalities\":[\"text\",\"audio\"]"), "400 - modalities: modalities is not supported with this value" },
        { CHAT("\"guided_json\":{\"type\":\"object\"}"), "400 - guided_json: guided_json is not supported with this value" },
        { CHAT("\"grammar\":\"root ::= x\""), "400 - grammar: grammar is not supported with this value" },
        { CHAT("\"truncate_prompt_tokens\":10"), "400 - truncate_prompt_tokens: truncate_prompt_tokens is not supported" },
        { CHAT("\"chat_template\":\"x\""), "400 - chat_template: chat_template is not supported" },
        { COMPLETION("\"suffix\":\"x\""), "400 - suffix: suffix is not supported with this value" },
        { CHAT("\"typical_p\":0.5"), "400 - typical_p: typical_p is not supported with this value" },
        { CHAT("\"repeat_last_n\":64"), "400 - repeat_last_n: repeat_last_n is not supported with this value" },
        { CHAT("\"repeat_penalty\":1.2,\"repetition_penalty\":1.1"), "400 - repeat_penalty: repeat_penalty and repetition_penalty are one "
                                                                     "thing and must not differ" },
        /* templates */
        { CHAT("\"chat_template_kwargs\":[]"), "400 - chat_template_kwargs: chat_template_kwargs must be an object" },
        { CHAT("\"chat_template_kwargs\":{\"messages\":[]}"), "400 - chat_template_kwargs: chat_template_kwargs must not hold messages" },
        { CHAT("\"documents\":[1]"), "400 - documents: documents[0] must be an object" },
        { CHAT("\"continue_final_message\":true,\"add_generation_prompt\":true"),
          "400 - continue_final_message: continue_final_message and add_generation_prompt exclude each other" },
        { API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[]}],\"continue_final_message\":true}",
          "400 - messages: the last message has no text to go on with" },
    };
    check_refused(rows, COUNT_OF(rows));
}

static void test_refused_prompts(void)
{
    static const struct refusal rows[] = {
        /* prompts */
        { API_COMPLETION, "{}", "400 - prompt: prompt is missing" },
        { PROMPT("null"), "400 - prompt: prompt is missing" },
        { PROMPT("7"), "400 - prompt: prompt must be a string, an array of token ids, or an array of those" },
        { PROMPT("[]"), "400 - prompt: prompt is empty" },
        { PROMPT("[[]]"), "400 - prompt[0]: prompt[0] is empty" },
        { PROMPT("[\"a\",7]"), "400 - prompt[1]: prompt[1] must be a string, an array of token ids, or an array of those" },
        { PROMPT("[7,\"a\"]"), "400 - prompt: prompt[1] must be a token id" },
        { PROMPT("[7,261]"), "400 - prompt: prompt[1] is 261, and token ids go from 0 to 260" },
        { PROMPT("[-1]"), "400 - prompt: prompt[0] is -1, and token ids go from 0 to 260" },
        { PROMPT("[[7],[1e10]]"), "400 - prompt[1]: prompt[1][0] is 10000000000, and token ids go from 0 to 260" },
        { COMPLETION("\"add_special_tokens\":false,\"prompt\":\"\""), "400 - -: the key \"prompt\" twice in the object that ends at byte "
                                                                      "54" },
        { API_COMPLETION, "{\"prompt\":\"\",\"add_special_tokens\":false}", "400 - prompt: prompt is empty" },
        { API_COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"n\":65}", "400 - n: n times the number of prompts is 130, the limit is 128" },
    };
    check_refused(rows, COUNT_OF(rows));
}

static void test_prompts(void)
{
    static const struct { enum api_kind kind; const char *body, *want; } rows[] = {
        { API_CHAT, "{" USER "}", "[s][u]user:hi[|im_end|][a]" },
        { MESSAGES("[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"user\",\"content\":\" x "
                   "\"},{\"role\":\"assistant\",\"content\":\"y\"},"
                   "{\"role\":\"tool\",\"content\":\"z\",\"tool_call_id\":\"1\"}]"),
          "[s][u]system:d[|im_end|][u]user:x[|im_end|][u]assistant:y[|im_end|][u]tool:z[|im_end|][a]" },
        /* CT-06: with arguments as clients send them */
        { MESSAGES("[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
                   "\"arguments\":\"{\\\"a\\\":18446744073709551615}\"}}]},"
                   "{\"role\":\"tool\",\"content\":\"4\"}]"),
          "[s][u]assistant:[f {\"a\": 18446744073709551615}][|im_end|][u]tool:4[|im_end|][a]" },
        { MESSAGES("[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"no json\"}}]}]"),
          "[s][u]assistant:[f \"no json\"][|im_end|][a]" },
        { MESSAGES("[{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":null,\"annotations\":[],\"audio\":null,"
                   "\"function_call\":null}]"), "[s][u]assistant:a[|im_end|][a]" },
        /* CT-07 */
        { MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"22 C\"},{\"type\":\"text\",\"text\":\"sunny\"}]}]"),
         "[s][u]user:22 C\nsunny[|im_end|][a]" },
        /* Special tokens in what people wrote are text. */
        { MESSAGES("[{\"role\":\"user\",\"content\":\"a</s><u>b\"}]"), "[s][u]user:a</s><u>b[|im_end|][a]" },
        { MESSAGES("[{\"role\":\"user\",\"content\":\"  <s>\\n\"}]"), "[s][u]user:<s>[|im_end|][a]" },
        { MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<\"},{\"type\":\"text\",\"text\":\"a>\"}]}]"),
         "[s][u]user:<\na>[|im_end|][a]" },
        { MESSAGES("[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"<a>\",\"arguments\":{\"<u>\":\"</s>\"}}}]}]"),
          "[s][u]assistant:[<a> {\"<u>\": \"</s>\"}][|im_end|][a]" },
        { CHAT("\"chat_template_kwargs\":{\"style\":\"<u>\"}"), "[s][u]user:hi[|im_end|]<u>[a]" },
        { MESSAGES("[{\"role\":\"user\",\"content\":\"\xef\xb7\x90<u>\xef\xb7\x91\"}]"),
         "[s][u]user:\xef\xb7\x90<u>\xef\xb7\x91[|im_end|][a]" },
        /* fields of the template's */
        { CHAT("\"add_generation_prompt\":false"), "[s][u]user:hi" },
        { CHAT("\"chat_template_kwargs\":{\"style\":\"s\"},\"reasoning_effort\":\"low\""), "[s][u]user:hi[|im_end|]slow[a]" },
        { CHAT("\"documents\":[{\"text\":\"d\"}]"), "[s][u]user:hi[|im_end|](d)[a]" },
        { MESSAGES("[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"an\"}],\"continue_final_message\":true"),
         "[s][u]user:q[|im_end|][u]assistant:an" },
        { MESSAGES("[{\"role\":\"assistant\",\"content\":\"<u>\"}],\"continue_final_message\":true"), "[s][u]assistant:<u>" },
        { MESSAGES("[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"<u>\"},{\"type\":\"text\",\"text\":\"an\"}]}],"
                   "\"continue_final_message\":true"), "[s][u]assistant:<u>\nan" },
        { MESSAGES("[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"\"}]}],\"continue_final_message\":true"), "[s][u]assistant:" },
        /* completions */
        { PROMPT("\"hi\""), "[s]hi" },
        { PROMPT("\"<s>hi<u>\""), "[s]hi[u]" },
        { PROMPT("[104,105]"), "hi" },
        { PROMPT("[104.0,1.05e2]"), "hi" },
        { PROMPT("[[104]]"), "h" },
        { PROMPT("[\"x\"]"), "[s]x" },
        { PROMPT("\"\""), "[s]" },
        { PROMPT("\"ab\",\"add_special_tokens\":false"), "ab" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct api_request *request;
        check_begin("prompt of %s", rows[i].body);
        check_text(read_body(rows[i].kind, rows[i].body, strlen(rows[i].body), &request), "");
        if (request)
            check_text(prompt_text(&request->prompts[0]), rows[i].want);
        api_request_close(request);
    }
}

/* What a request holds, in one line; fields with their usual values are left out. */
static char *summary(const struct api_request *q)
{
    static char text[1024];
    struct buffer out = { 0 };
    const struct { const char *name; double value, usual; } numbers[] = {
        { "prompts", q->n_prompts, 1 }, { "n", q->n, 1 }, { "max", q->prompts[0].max_tokens, q->kind == API_CHAT ? 53 : 16 }, { "min",
                q->min_tokens, 0 },
        { "temperature", (double)q->temperature, 1 }, { "top_p", (double)q->top_p, 1 }, { "min_p", (double)q->min_p, 0 }, { "top_k",
                q->top_k, 0 },
        { "repetition", (double)q->repetition_penalty, 1 }, { "frequency", (double)q->frequency_penalty, 0 }, { "presence",
                (double)q->presence_penalty, 0 },
        { "seed", q->has_seed ? (double)(int64_t)q->seed : -0.5, -0.5 }, { "include_stop", q->include_stop, 0 }, { "skip_special",
                q->skip_special, 1 },
        { "stream", q->stream, 0 }, { "usage", q->include_usage, 0 }, { "echo", q->echo, 0 }, { "logprobs", q->logprobs, 0 }, { "top",
                q->top_logprobs, 0 },
        { "ids", q->return_token_ids, 0 }, { "priority", q->priority, 0 },
    };
    buffer_add_text(&out, q->model);
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        if (numbers[i].value != numbers[i].usual)
            buffer_printf(&out, " %s=%g", numbers[i].name, numbers[i].value);
    for (uint32_t i = 0; i < q->n_bias; i++)
        buffer_printf(&out, " bias[%u]=%g", q->bias[i].id, (double)q->bias[i].add);
    for (uint32_t i = 0; i < q->n_stop; i++)
        buffer_printf(&out, " stop=%.*s", (int)q->stop[i].n_bytes, q->stop[i].bytes);
    if (q->n_stop_ids != 2 || q->stop_ids[0] != TINY_END || q->stop_ids[1] != TINY_TURN)
        buffer_add_text(&out, " stop_ids=");
    for (uint32_t i = 0; (q->n_stop_ids != 2 || q->stop_ids[0] != TINY_END) && i < q->n_stop_ids; i++)
        buffer_printf(&out, "%d,", q->stop_ids[i]);
    if (q->cache_salt)
        buffer_printf(&out, " salt=%.*s", (int)q->n_cache_salt, q->cache_salt);
    for (size_t at = 0; at < q->n_odd_bytes; at += strlen(q->odd + at) + 1)
        buffer_printf(&out, " odd=%s", q->odd + at);
    snprintf(text, sizeof text, "%s", out.bytes);
    buffer_release(&out);
    return text;
}

static void test_requests(void)
{
    static const struct { enum api_kind kind; const char *body, *want; } rows[] = {
        { API_CHAT, "{" USER "}", "tiny" },
        { PROMPT("\"hi\""), "tiny" },
        { CHAT("\"model\":\"org/Some-model_1.5:q4@x+y\""), "org/Some-model_1.5:q4@x+y" },
        { CHAT("\"max_tokens\":5"), "tiny max=5" },
        { CHAT("\"temperature\":1e-30"), "tiny temperature=0" },
        { CHAT("\"max_tokens\":5,\"max_completion_tokens\":6"), "tiny max=6" },
        { CHAT("\"max_tokens\":5e0"), "tiny max=5" },
        { CHAT("\"max_tokens\":1000"), "tiny" },
        { CHAT("\"n_predict\":7"), "tiny max=7" },
        { COMPLETION("\"n_predict\":-1"), "tiny max=61" },
        { COMPLETION("\"max_tokens\":0"), "tiny max=0" },
        { COMPLETION("\"max_tokens\":0,\"echo\":true"), "tiny max=0 echo=1" },
        { COMPLETION("\"max_tokens\":1000"), "tiny max=61" },
        { COMPLETION("\"max_tokens\":null,\"temperature\":null,\"stop\":null,\"logprobs\":null,\"prompt_logprobs\":null"), "tiny" },
        { CHAT("\"temperature\":0,\"top_p\":1"), "tiny temperature=0" },
        { CHAT("\"temperature\":2,\"top_p\":0.5,\"min_p\":0.25,\"top_k\":40"), "tiny temperature=2 top_p=0.5 min_p=0.25 top_k=40" },
        { CHAT("\"top_k\":-1"), "tiny" },
        { CHAT("\"frequency_penalty\":-2,\"presence_penalty\":2,\"repetition_penalty\":1.5"),
         "tiny repetition=1.5 frequency=-2 presence=2" },
        { CHAT("\"repeat_penalty\":1.5,\"repeat_last_n\":-1"), "tiny repetition=1.5" },
        { CHAT("\"seed\":0"), "tiny seed=0" },
        { CHAT("\"seed\":-7"), "tiny seed=-7" },
        { CHAT("\"seed\":-1"), "tiny" },
        { CHAT("\"seed\":9223372036854775807"), "tiny seed=9.22337e+18" },
        { CHAT("\"seed\":null"), "tiny" },
        { CHAT("\"n\":3,\"priority\":-5,\"cache_salt\":\"s\""), "tiny n=3 priority=-5 salt=s" },
        { COMPLETION("\"n\":3,\"best_of\":3"), "tiny n=3" },
        { API_COMPLETION, "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":2}", "tiny prompts=3 n=2" },
        { API_COMPLETION, "{\"prompt\":[[1],[2]]}", "tiny prompts=2" },
        { CHAT("\"logit_bias\":{\"0\":-100,\"260\":2.5}"), "tiny bias[0]=-100 bias[260]=2.5" },
        { CHAT("\"logit_bias\":{}"), "tiny" },
        { CHAT("\"stop\":\"END\""), "tiny stop=END" },
        { CHAT("\"stop\":[\"a\",\"b\"]"), "tiny stop=a stop=b" },
        { CHAT("\"stop\":[]"), "tiny" },
        { CHAT("\"stop_token_ids\":[7]"), "tiny stop_ids=7,257,260," },
        { CHAT("\"ignore_eos\":true"), "tiny stop_ids=" },
        { CHAT("\"ignore_eos\":true,\"stop_token_ids\":[257]"), "tiny stop_ids=257," },
        { CHAT("\"min_tokens\":3,\"include_stop_str_in_output\":true,\"skip_special_tokens\":false"),
         "tiny min=3 include_stop=1 skip_special=0" },
        { CHAT("\"stream\":true,\"stream_options\":{\"include_usage\":true}"), "tiny stream=1 usage=1" },
        { CHAT("\"stream\":true,\"stream_options\":{\"include_usage\":false,\"include_obfuscation\":false}"),
          "tiny stream=1 odd=stream_options.include_obfuscation" },
        { CHAT("\"logprobs\":true"), "tiny logprobs=1" },
        { CHAT("\"logprobs\":true,\"top_logprobs\":0"), "tiny logprobs=1" },
        { CHAT("\"logprobs\":true,\"top_logprobs\":20"), "tiny logprobs=1 top=20" },
        { CHAT("\"logprobs\":false,\"top_logprobs\":0"), "tiny" },
        { COMPLETION("\"logprobs\":0"), "tiny logprobs=1" },
        { COMPLETION("\"logprobs\":5,\"return_token_ids\":true"), "tiny logprobs=1 top=5 ids=1" },
        /* what does not change the text */
        { CHAT("\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"store\":true,\"service_tier\":\"auto\",\"parallel_tool_calls\":false,"
               "\"prediction\":{},\"safety_identifier\":null"),
          "tiny odd=user odd=metadata odd=store odd=service_tier odd=parallel_tool_calls odd=prediction" },
        { CHAT("\"tools\":[],\"tool_choice\":\"none\",\"functions\":[],\"function_call\":\"none\",\"response_format\":{\"type\":\"text\"},"
               "\"modalities\":[\"text\"]"), "tiny" },
        { CHAT("\"typical_p\":1.0,\"mirostat\":0,\"dry_multiplier\":0,\"grammar\":\"\",\"guided_json\":null,\"echo\":false,"
               "\"use_beam_search\":false"), "tiny" },
        { CHAT("\"foo\":1,\"bar\":[[]],\"prompt\":5"), "tiny odd=foo odd=bar odd=prompt" },
        { CHAT("\"foo\":null,\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,\"9\":1"),
          "tiny odd=1 odd=2 odd=3 odd=4 odd=5 odd=6 odd=7 odd=8 odd=9" },
        { API_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":null,\"annotations\":[],\"reasoning_content\":\"r\"},"
          "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\",\"cache\":1}],\"annotations\":1,\"user\":2}],\"user\":3}",
          "tiny max=40 odd=user odd=messages[].annotations odd=messages[].content[].cache odd=messages[].user" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct api_request *request;
        check_begin("request: %s", rows[i].body);
        check_text(read_body(rows[i].kind, rows[i].body, strlen(rows[i].body), &request), "");
        if (request)
            check_text(summary(request), rows[i].want);
        api_request_close(request);
    }
}

/* OA-13: a small body that asks for much is refused at once. */
static void test_limits(void)
{
#define HI "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],"
    static const struct { enum api_kind kind; const char *before, *piece, *after, *want; size_t n; } rows[] = {
        { API_CHAT, HI "\"stop\":[\"\"", ",\"x\"", "]}", "400 - stop: stop has 500001 strings, the limit is 16", 500000 },
        { API_CHAT, HI "\"stop\":\"", "x", "\"}", "400 - stop: a stop string must have 1 to 1024 characters", 1025 },
        { API_CHAT, HI "\"bad_words\":[\"\"", ",\"x\"", "]}", "400 - bad_words: bad_words is not supported with this value", 50000 },
        { API_CHAT, HI "\"stop_token_ids\":[0", ",1", "]}", "400 - stop_token_ids: stop_token_ids has 500001 items, the limit is 256",
         500000 },
        { API_CHAT, HI "\"model\":\"", "m", "\"}", "400 - model: model must have 1 to 256 characters", 5000 },
        { API_CHAT, HI "\"cache_salt\":\"", "m", "\"}", "400 - cache_salt: cache_salt must have 1 to 256 characters", 257 },
        { API_CHAT, HI "\"cache_salt\":\"", "\xc3\xa9", "\"}", "", 256 },
        { API_CHAT, HI "\"cache_salt\":\"", "\xc3\xa9", "\"}", "400 - cache_salt: cache_salt must have 1 to 256 characters", 257 },
        { API_CHAT, "{\"messages\":[{}", ",{}", "]}", "400 - messages: messages has 4097 items, the limit is 4096", 4096 },
        { API_COMPLETION, "{\"prompt\":[\"x\"", ",\"x\"", "]}", "400 - prompt: prompt has 65 items, the limit is 64", 64 },
        { API_COMPLETION, "{\"prompt\":\"", "x", "\"}",
          "400 context_length_exceeded prompt: the context of this model has 64 tokens, and the prompt at least 4096, which leaves no room "
          "for an answer", 40960 },
        { API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"", "x", "\"}]}",
          "400 context_length_exceeded messages: the context of this model has 64 tokens, and the prompt at least 64, which leaves no room "
          "for an answer", 40960 },
        { API_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}",
         ",{\"function\":{\"name\":\"f\",\"arguments\":\"[[[[[[[[[[]]]]]]]]]]\"}}", "]}]}",
          "400 - messages: the arguments of tool calls have more than 1048576 bytes", 60000 },
        { API_CHAT, HI "\"x\":", "[", "", "400 - -: JSON nested more than 128 deep at byte 175", 1000000 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct buffer body = { 0 };
        struct api_request *request;
        check_begin("OA-13: %s %s", rows[i].before, rows[i].want);
        buffer_add_text(&body, rows[i].before);
        for (size_t k = 0; k < rows[i].n; k++)
            buffer_add_text(&body, rows[i].piece);
        buffer_add_text(&body, rows[i].after);
        clock_t start = clock();
        check_text(read_body(rows[i].kind, body.bytes, body.size, &request), rows[i].want);
        check((double)(clock() - start) / CLOCKS_PER_SEC < 5);
        api_request_close(request);
        buffer_release(&body);
    }
}

/* So many items of an object. */
static void test_many_keys(void)
{
    static const struct { const char *field, *want; int n; } rows[] = {
        { "logit_bias", "400 - logit_bias: logit_bias has 1025 items, the limit is 1024", 1025 },
        { "chat_template_kwargs", "400 - chat_template_kwargs: chat_template_kwargs has 65 items, the limit is 64", 65 },
        { "chat_template_kwargs", "", 64 },
        { "logit_bias", "", 261 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct buffer body = { 0 };
        struct api_request *request;
        check_begin("OA-13: %d items of %s", rows[i].n, rows[i].field);
        buffer_printf(&body, HI "\"%s\":{", rows[i].field);
        for (int k = 0; k < rows[i].n; k++)
            buffer_printf(&body, "%s\"%d\":1", k ? "," : "", k);
        buffer_add_text(&body, "}}");
        check_text(read_body(API_CHAT, body.bytes, body.size, &request), rows[i].want);
        api_request_close(request);
        buffer_release(&body);
    }
}

static void test_kinds_of_models(void)
{
    struct api_request *request;
    static const struct { const char *body, *want; } strict[] = {
        { "{" USER ",\"temprature\":1}", "400 - temprature: temprature changes nothing here" },
        { "{" USER ",\"user\":\"x\"}", "400 - user: user changes nothing here" },
        { "{" USER ",\"user\":null,\"temperature\":1}", "" },
        { "{" USER ",\"stream_options\":{\"include_usage\":true,\"usage\":true}}",
          "400 - stream_options.usage: stream_options.usage changes nothing here" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"blarg\":1}]}", "400 - messages[].blarg: messages[].blarg changes nothing here" },
    };
    const char *body, *known = "{" USER ",\"user\":\"x\"}";
    tiny.api.strict = true;
    for (size_t i = 0; i < COUNT_OF(strict); i++) {
        check_begin("--strict: %s", strict[i].body);
        check_text(read_body(API_CHAT, strict[i].body, strlen(strict[i].body), &request), strict[i].want);
        api_request_close(request);
    }
    tiny.api.strict = false;
    check_begin("a model without a chat template");
    tiny.api.template = NULL;
    check_text(read_body(API_CHAT, known, strlen(known), &request), "400 - messages: this model has no chat template: it completes prompts "
                                                                    "only");
    tiny.api.template = tiny.template;
    check_begin("a template that refuses");
    struct template *refusing = NULL;
    const char *source = "{{ raise_exception('roles must take turns') }}";
    check_int(template_open(&refusing, source, strlen(source)), 0);
    tiny.api.template = refusing;
    check_text(read_body(API_CHAT, known, strlen(known), &request), "400 - messages: roles must take turns");
    template_close(refusing);
    check_begin("a template that does more with a text than to print it");
    source = "{{ messages[0].content | length }}";
    check_int(template_open(&refusing, source, strlen(source)), 0);
    tiny.api.template = refusing;
    check_text(read_body(API_CHAT, known, strlen(known), &request), "");
    api_request_close(request);
    body = "{\"messages\":[{\"role\":\"user\",\"content\":\"<u>\"}]}";
    check_text(read_body(API_CHAT, body, strlen(body), &request),
               "400 - messages: a message holds the text of a special token, and the chat template does more with it than to print it");
    template_close(refusing);
    tiny.api.template = tiny.template;
}

/* A special token in two halves, for a template that puts one behind the other. */
static void test_parts(void)
{
    static const char source[] = "{{ bos_token }}{% for p in messages[0].content %}{{ p.text }}{% endfor %}<a>";
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<\"},{\"type\":\"text\","
                               "\"text\":\"u>\"}]}]}";
    struct api_request *request;
    struct template *looping = NULL;
    check_begin("a special token in two parts of a content");
    check_int(template_open(&looping, source, strlen(source)), 0);
    tiny.api.template = looping;
    check_text(read_body(API_CHAT, body, strlen(body), &request), "");
    if (request)
        check_text(prompt_text(&request->prompts[0]), "[s]<u>[a]");
    api_request_close(request);
    tiny.api.template = tiny.template;
    template_close(looping);
}

static void test_routes(void)
{
    static const struct { int (*answer)(struct buffer *, struct buffer *, const struct api_model *, const char *, size_t, struct api_error *);
                          const char *body, *want; } rows[] = {
        { api_tokenize, "{\"prompt\":\"a<u>\"}", "{\"count\": 3, \"max_model_len\": 64, \"tokens\": [256, 97, 258], \"token_strs\": "
                                                 "null}" },
        { api_tokenize, "{\"content\":\"a\",\"add_special\":false}", "{\"count\": 1, \"max_model_len\": 64, \"tokens\": [97], "
                                                                     "\"token_strs\": null}" },
        { api_tokenize, "{\"content\":\"<u>\",\"add_special\":false,\"parse_special\":false}",
          "{\"count\": 3, \"max_model_len\": 64, \"tokens\": [60, 117, 62], \"token_strs\": null}" },
        { api_tokenize, "{\"prompt\":\"\",\"add_special_tokens\":false}",
         "{\"count\": 0, \"max_model_len\": 64, \"tokens\": [], \"token_strs\": null}" },
        { api_tokenize, "{" USER ",\"add_generation_prompt\":false}",
          "{\"count\": 9, \"max_model_len\": 64, \"tokens\": [256, 258, 117, 115, 101, 114, 58, 104, 105], \"token_strs\": null}" },
        { api_tokenize, "{\"prompt\":\"a\xc3\xa9\",\"return_token_strs\":true}",
          "{\"count\": 4, \"max_model_len\": 64, \"tokens\": [256, 97, 195, 169], \"token_strs\": [\"<s>\", \"a\", \"\xef\xbf\xbd\", "
          "\"\xef\xbf\xbd\"]}" },
        { api_tokenize, "{\"content\":\"a\xc3\xa9\",\"with_pieces\":true,\"add_special\":false}",
          "{\"count\": 3, \"max_model_len\": 64, \"tokens\": [{\"id\": 97, \"piece\": \"a\"}, {\"id\": 195, \"piece\": [195]}, {\"id\": "
          "169, \"piece\": [169]}], "
          "\"token_strs\": null}" },
        { api_tokenize, "{}", "400 prompt: one of prompt, content and messages must be given" },
        { api_tokenize, "{\"prompt\":5}", "400 prompt: prompt must be a string" },
        { api_tokenize, "{\"prompt\":\"a\",\"messages\":[]}", "400 messages: messages must be an array with at least one message" },
        { api_tokenize, "{\"prompt\":\"a\",\"documents\":[5]}", "400 documents: documents[0] must be an object" },
        { api_tokenize, "{\"prompt\":\"a\",\"chat_template_kwargs\":{\"tools\":1}}",
          "400 chat_template_kwargs: chat_template_kwargs must not hold tools" },
        { api_tokenize, "{\"messages\":[]}", "400 messages: messages must be an array with at least one message" },
        { api_detokenize, "{\"tokens\":[256,97,195,169,258]}", "{\"prompt\": \"<s>a\xc3\xa9<u>\", \"content\": \"<s>a\xc3\xa9<u>\"}" },
        { api_detokenize, "{\"tokens\":[]}", "{\"prompt\": \"\", \"content\": \"\"}" },
        { api_detokenize, "{\"tokens\":[0,255]}", "{\"prompt\": \"\\u0000\xef\xbf\xbd\", \"content\": \"\\u0000\xef\xbf\xbd\"}" },
        { api_detokenize, "{}", "400 tokens: tokens is missing" },
        { api_detokenize, "{\"tokens\":[261]}", "400 tokens: tokens[0] is 261, and token ids go from 0 to 260" },
        { api_detokenize, "{\"tokens\":\"a\"}", "400 tokens: tokens must be an array" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct buffer out = { 0 }, odd = { 0 };
        struct api_error error = { 0 };
        check_begin("route: %s", rows[i].body);
        if (rows[i].answer(&out, &odd, &tiny.api, rows[i].body, strlen(rows[i].body), &error) < 0)
            buffer_printf(&out, "%d %s: %s", error.status, error.param, error.message);
        check_text(out.bytes, rows[i].want);
        check_int(odd.size, 0);
        buffer_release(&out);
        buffer_release(&odd);
    }
    struct buffer out = { 0 }, odd = { 0 };
    struct api_error error = { 0 };
    const char *body = "{\"prompt\":\"a\",\"zonk\":1}";
    check_begin("a route that is told what changes nothing");
    check_int(api_tokenize(&out, &odd, &tiny.api, body, strlen(body), &error), 0);
    check_text(odd.bytes, "zonk");
    check_int(odd.size, 5);
    buffer_release(&out);
    buffer_release(&odd);
    check_begin("models");
    api_models(&out, &tiny.api);
    check_text(out.bytes, "{\"object\": \"list\", \"data\": [{\"id\": \"tiny\", \"object\": \"model\", \"created\": 1700000000, "
                          "\"owned_by\": \"stoa\", "
                          "\"root\": \"tiny\", \"parent\": null, \"max_model_len\": 64}]}");
    buffer_release(&out);
    api_model(&out, &tiny.api, "other");
    check_text(out.bytes, "{\"id\": \"other\", \"object\": \"model\", \"created\": 1700000000, \"owned_by\": \"stoa\", \"root\": \"tiny\", "
                          "\"parent\": null, \"max_model_len\": 64}");
    buffer_release(&out);
}

/* OA-15: whatever a client wrote, the body of an error is JSON. */
static void test_errors(void)
{
    struct api_error error;
    struct buffer out = { 0 };
    check_begin("an error with odd bytes");
    api_refuse(&error, "a\"b", "\xff\n\"%s\"", "x");
    api_write_error(&out, &error);
    check_text(out.bytes, "{\"error\": {\"message\": \"\xef\xbf\xbd\\n\\\"x\\\"\", \"type\": \"invalid_request_error\", \"param\": "
                          "\"a\\\"b\", \"code\": null}}");
    buffer_release(&out);
}

/* ---- /openapi.json ---- */

static void check_refs(json_t *root, json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_array(value))
        json_array_foreach(value, i, item)
            check_refs(root, item);
    json_object_foreach(value, key, item) {
        if (!strcmp(key, "$ref") && json_is_string(item)) {
            char kind[32], name[64];
            json_t *there = NULL;
            if (sscanf(json_string_value(item), "#/components/%31[a-z]/%63s", kind, name) == 2)
                there = json_object_get(json_object_get(json_object_get(root, "components"), kind), name);
            if (!check(there != NULL))
                printf("  %s\n", json_string_value(item));
        }
        check_refs(root, item);
    }
}

/* What one table says once: every route that the front has, every field that a body may have. */
static void check_is_whole(json_t *root)
{
    static const char *const bodies[] = { [API_CHAT] = "ChatRequest", [API_COMPLETION] = "CompletionRequest",
                                          [API_TOKENIZE] = "TokenizeRequest", [API_DETOKENIZE] = "DetokenizeRequest" };
    json_t *paths = json_object_get(root, "paths"), *schemas = json_object_get(json_object_get(root, "components"), "schemas");
    for (size_t i = 0; i < n_front_routes; i++) {
        const char *path = front_routes[i].path;
        char with_name[64], method[8] = "";
        snprintf(with_name, sizeof with_name, "%s%s", path, path[strlen(path) - 1] == '/' ? "{id}" : "");
        for (size_t k = 0; front_routes[i].method[k]; k++)
            method[k] = (char)(front_routes[i].method[k] | 0x20);
        json_t *route = json_object_get(json_object_get(paths, with_name), method);
        bool is_open = json_array_size(json_object_get(route, "security")) == 0;
        if (!check(route != NULL) || !check(is_open == front_routes[i].is_open))
            printf("  %s %s\n", method, with_name);
    }
    check_int((int64_t)json_object_size(paths), (int64_t)n_front_routes);
    for (size_t kind = 0; kind < COUNT_OF(bodies); kind++)
        for (size_t i = 0; i < api_n_fields; i++)
            if (api_fields[i].kinds & 1u << kind &&
                !check(json_object_get(json_object_get(json_object_get(schemas, bodies[kind]), "properties"), api_fields[i].name) != NULL))
                printf("  %s: %s\n", bodies[kind], api_fields[i].name);
}

static void test_openapi(void)
{
    struct buffer out = { 0 };
    json_error_t error;
    check_begin("openapi.json");
    api_openapi(&out, &tiny.api);
    json_t *root = json_loadb(out.bytes, out.size, JSON_REJECT_DUPLICATES, &error);
    if (!check(root != NULL))
        printf("  %s at %d: %.60s\n", error.text, error.position, out.bytes + MAX(error.position - 30, 0));
    check_refs(root, root);
    check_is_whole(root);
    json_t *chat = json_object_get(json_object_get(json_object_get(json_object_get(root, "components"), "schemas"), "ChatRequest"),
                                   "properties");
    char *top_k = json_dumps(json_object_get(chat, "temperature"), JSON_COMPACT), *tool_choice = json_dumps(json_object_get(chat,
            "tool_choice"), JSON_COMPACT);
    check_text(top_k, "{\"type\":[\"number\",\"null\"],\"minimum\":0,\"maximum\":2}");
    check_text(tool_choice, "{\"enum\":[null,false,0,\"\",[],{},\"none\",[\"none\"],{\"type\":\"none\"}]}");
    free(top_k);
    free(tool_choice);
    json_decref(root);
    buffer_release(&out);
}

int main(void)
{    tiny_model_open(&tiny, CONTEXT);
    test_refused_messages();
    test_refused_values();
    test_refused_names_and_templates();
    test_refused_prompts();
    test_prompts();
    test_requests();
    test_limits();
    test_many_keys();
    test_kinds_of_models();
    test_parts();
    test_routes();
    test_errors();
    test_openapi();
    tiny_model_close(&tiny);
    return check_done();
}

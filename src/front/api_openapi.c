/* api_openapi.c: the API as OpenAPI 3.1 has it.  Fields come from their table, so they are said once.
 * All is written with ' for " first. */
#include "front/api_fields.h"

#include "base/base.h"

#include <string.h>

#define REF(name) "{'$ref': '#/components/schemas/" name "'}"

static const struct {
    const char *method, *path, *summary;
    const char *takes, *gives;          /* schemas; NULL: no body, a text */
    bool streams, is_open, is_state, may_be_busy;
} routes[] = {
    { "post", "/v1/chat/completions", "Answers a chat", "ChatRequest", "ChatCompletion", .streams = true, .may_be_busy = true },
    { "post", "/v1/completions", "Goes on with a prompt", "CompletionRequest", "Completion", .streams = true, .may_be_busy = true },
    { "get", "/v1/models", "The model that is served", NULL, "Models", .may_be_busy = true },
    { "get", "/v1/models/{id}", "The same, by name", NULL, "Model", .may_be_busy = true },
    { "post", "/tokenize", "Token ids of a text or a chat", "TokenizeRequest", "Tokens", .may_be_busy = true },
    { "post", "/detokenize", "The text of token ids", "DetokenizeRequest", "Text", .may_be_busy = true },
    { "get", "/version", "The version of this server", NULL, "Version", .may_be_busy = false },
    { "get", "/openapi.json", "This description", NULL, "Any", .may_be_busy = true },
    { "get", "/live", "200 while the server runs", NULL, "State", .is_open = true },
    { "get", "/health", "200 when a request would be served", NULL, "State", .is_open = true, .is_state = true },
    { "get", "/ready", "The same, and 503 while it drains", NULL, "State", .is_open = true, .is_state = true },
    { "get", "/metrics", "Prometheus metrics", NULL, NULL, .is_open = true },
};

/* `more` is the inside of a JSON object. */
#define NOT_BOTH "'not': {'properties': {'continue_final_message': {'const': true}, 'add_generation_prompt': {'const': true}}, " \
    "'required': ['continue_final_message', 'add_generation_prompt']}, "
static const struct { enum api_kind kind; const char *name, *required, *more; } bodies[] = {
    { API_CHAT, "ChatRequest", "messages", "'required': ['messages'], " NOT_BOTH
      "'if': {'properties': {'top_logprobs': {'type': 'integer', 'minimum': 1}}, 'required': ['top_logprobs']}, "
      "'then': {'properties': {'logprobs': {'const': true}}, 'required': ['logprobs']}" },
    { API_COMPLETION, "CompletionRequest", "prompt", "'required': ['prompt'], "
      "'if': {'properties': {'echo': {'const': true}}, 'required': ['echo']}, "
      "'then': {'properties': {'logprobs': {'type': 'null'}}}" },
    { API_TOKENIZE, "TokenizeRequest", NULL, NOT_BOTH "'anyOf': [{'required': ['prompt'], 'properties': {'prompt': {'type': 'string'}}}, "
      "{'required': ['content'], 'properties': {'content': {'type': 'string'}}}, "
      "{'required': ['messages'], 'properties': {'messages': " REF("Messages") "}}]" },
    { API_DETOKENIZE, "DetokenizeRequest", "tokens", "'required': ['tokens']" },
};

static const char schemas[] =
    "'Any': true, "
    "'State': {'type': 'object', 'required': ['status'], 'properties': {'status': {'enum': ['ok', 'unavailable']}, "
        "'reason': {'type': 'string'}}}, "
    "'ModelName': {'type': 'string', 'minLength': 1, 'maxLength': " API_DIGITS(API_MAX_NAME) ", "
        "'pattern': '^[A-Za-z0-9_:+@-][A-Za-z0-9_.:+@-]*(/[A-Za-z0-9_:+@-][A-Za-z0-9_.:+@-]*)*$'}, "
    "'Content': {'anyOf': [{'type': 'string'}, {'type': 'array', 'items': {'type': 'object', 'required': ['type', 'text'], "
        "'properties': {'type': {'const': 'text'}, 'text': {'type': 'string'}}}}]}, "
    "'ToolCall': {'type': 'object', 'required': ['function'], 'properties': {'function': {'type': 'object', "
        "'required': ['name', 'arguments'], 'properties': {'name': {'type': 'string'}, "
        "'arguments': {'type': ['string', 'object']}}}}}, "
    "'Messages': {'type': 'array', 'minItems': 1, 'maxItems': " API_DIGITS(API_MAX_MESSAGES) ", 'items': {'anyOf': ["
        "{'type': 'object', 'required': ['role', 'content'], 'properties': {'role': {'enum': ['system', 'developer', 'user', 'tool']}, "
            "'content': " REF("Content") "}}, "
        "{'type': 'object', 'required': ['role'], 'properties': {'role': {'const': 'assistant'}, "
            "'content': {'anyOf': [" REF("Content") ", {'type': 'null'}]}, "
            "'tool_calls': {'type': ['array', 'null'], 'items': " REF("ToolCall") "}}}]}}, "
    "'Prompt': {'anyOf': [{'type': 'string', 'minLength': 1}, "
        "{'type': 'array', 'minItems': 1, 'maxItems': " API_DIGITS(API_MAX_PROMPTS) ", 'items': {'type': 'string', 'minLength': 1}}, "
        "{'type': 'array', 'minItems': 1, 'items': " REF("TokenId") "}, "
        "{'type': 'array', 'minItems': 1, 'maxItems': " API_DIGITS(API_MAX_PROMPTS) ", "
            "'items': {'type': 'array', 'minItems': 1, 'items': " REF("TokenId") "}}]}, "
    "'Error': {'type': 'object', 'required': ['error'], 'properties': {'error': {'type': 'object', "
        "'required': ['message', 'type', 'param', 'code'], 'properties': {'message': {'type': 'string'}, 'type': {'type': 'string'}, "
        "'param': {'type': ['string', 'null']}, 'code': {'type': ['string', 'null']}}}}}, "
    "'Usage': {'type': 'object', 'required': ['prompt_tokens', 'completion_tokens', 'total_tokens'], 'properties': {"
        "'prompt_tokens': {'type': 'integer'}, 'completion_tokens': {'type': 'integer'}, 'total_tokens': {'type': 'integer'}, "
        "'prompt_tokens_details': {'type': 'object', 'properties': {'cached_tokens': {'type': 'integer'}}}}}, "
    "'ChatCompletion': {'type': 'object', 'required': ['id', 'object', 'created', 'model', 'choices', 'usage'], 'properties': {"
        "'id': {'type': 'string'}, 'object': {'const': 'chat.completion'}, 'created': {'type': 'integer'}, 'model': {'type': 'string'}, "
        "'system_fingerprint': {'type': 'string'}, 'usage': " REF("Usage") ", 'choices': {'type': 'array', 'items': {'type': 'object', "
        "'required': ['index', 'message', 'finish_reason'], 'properties': {'index': {'type': 'integer'}, "
        "'message': {'type': 'object', 'required': ['role', 'content'], 'properties': {'role': {'const': 'assistant'}, "
        "'content': {'type': 'string'}}}, 'finish_reason': {'enum': ['stop', 'length']}}}}}}, "
    "'Completion': {'type': 'object', 'required': ['id', 'object', 'created', 'model', 'choices', 'usage'], 'properties': {"
        "'id': {'type': 'string'}, 'object': {'const': 'text_completion'}, 'created': {'type': 'integer'}, 'model': {'type': 'string'}, "
        "'system_fingerprint': {'type': 'string'}, 'usage': " REF("Usage") ", 'choices': {'type': 'array', 'items': {'type': 'object', "
        "'required': ['index', 'text', 'finish_reason'], 'properties': {'index': {'type': 'integer'}, 'text': {'type': 'string'}, "
        "'finish_reason': {'enum': ['stop', 'length']}}}}}}, "
    "'Model': {'type': 'object', 'required': ['id', 'object', 'created', 'owned_by'], 'properties': {'id': {'type': 'string'}, "
        "'object': {'const': 'model'}, 'created': {'type': 'integer'}, 'owned_by': {'type': 'string'}, "
        "'max_model_len': {'type': 'integer'}}}, "
    "'Models': {'type': 'object', 'required': ['object', 'data'], 'properties': {'object': {'const': 'list'}, "
        "'data': {'type': 'array', 'items': " REF("Model") "}}}, "
    "'Tokens': {'type': 'object', 'required': ['count', 'max_model_len', 'tokens'], 'properties': {'count': {'type': 'integer'}, "
        "'max_model_len': {'type': 'integer'}, 'tokens': {'type': 'array'}, 'token_strs': {'type': ['array', 'null']}}}, "
    "'Text': {'type': 'object', 'required': ['prompt', 'content'], 'properties': {'prompt': {'type': 'string'}, "
        "'content': {'type': 'string'}}}, "
    "'Version': {'type': 'object', 'required': ['version'], 'properties': {'version': {'type': 'string'}}}";

static const struct { int status; const char *text; bool of_bodies, of_busy; } errors[] = {
    { 400, "The request is wrong; the error names the field", .of_bodies = false },
    { 401, "An API key is needed", .of_bodies = false },
    { 404, "No such path, or no such model", .of_bodies = false },
    { 405, "No such method on this path", .of_bodies = false },
    { 408, "The request came too slowly", .of_bodies = false },
    { 413, "The body is too large", .of_bodies = true },
    { 415, "The body is no application/json", .of_bodies = true },
    { 429, "Too many requests are waiting", .of_busy = true },
    { 431, "The head is too large", .of_bodies = false },
    { 500, "The answer failed", .of_bodies = true },
    { 503, "No replica serves just now", .of_busy = true },
};

/* ---- fields ---- */

static void add_off(struct buffer *out, const struct api_field *f)
{
    buffer_printf(out, "{'enum': [null, false, %g, '', [], {}", f->low);
    if (f->off && *f->off)
        buffer_printf(out, ", '%s', ['%s'], {'type': '%s'}", f->off, f->off, f->off);
    buffer_add_text(out, "]}");
}

static void add_field(struct buffer *out, const struct api_field *f, bool required)
{
    buffer_printf(out, "'%s': ", f->name);
    if (f->schema && required) {
        buffer_printf(out, "{%s}", f->schema);
        return;
    }
    if (f->schema) {
        buffer_printf(out, "{'anyOf': [{%s}, {'type': 'null'}]}", f->schema);
        return;
    }
    switch (f->type) {
    case FIELD_BOOL:    buffer_add_text(out, "{'type': ['boolean', 'null']}"); break;
    case FIELD_INTEGER: buffer_printf(out, "{'type': ['integer', 'null'], 'minimum': %.0f, 'maximum': %.0f}", f->low, f->high); break;
    case FIELD_NUMBER:  buffer_printf(out, "{'type': ['number', 'null'], 'minimum': %g, 'maximum': %g}", f->low, f->high); break;
    case FIELD_TEXT:    buffer_printf(out, "{'type': ['string', 'null'], 'minLength': %.0f, 'maxLength': %.0f}", f->low, f->high); break;
    case FIELD_OFF:     add_off(out, f); break;
    case FIELD_NEVER:   buffer_add_text(out, "{'type': 'null'}"); break;
    default:            buffer_add_text(out, "true"); break;
    }
}

static void add_bodies(struct buffer *out)
{
    for (size_t i = 0; i < COUNT_OF(bodies); i++) {
        const char *between = "";
        buffer_printf(out, "'%s': {'type': 'object', %s, 'properties': {", bodies[i].name, bodies[i].more);
        for (size_t k = 0; k < api_n_fields; k++)
            if (api_fields[k].kinds & 1u << bodies[i].kind) {
                buffer_add_text(out, between);
                add_field(out, &api_fields[k], bodies[i].required && !strcmp(api_fields[k].name, bodies[i].required));
                between = ", ";
            }
        buffer_add_text(out, "}}, ");
    }
}

/* What depends on the vocabulary. */
static void add_ids(struct buffer *out, const struct api_model *model)
{
    int n_digits = 1;                   /* with one fewer than the largest id has, all are ids */
    for (uint32_t n = model->n_vocab; n >= 100; n /= 10)
        n_digits++;
    buffer_printf(out, "'TokenId': {'type': 'integer', 'minimum': 0, 'maximum': %u}, ", model->n_vocab - 1);
    buffer_printf(out, "'LogitBias': {'type': 'object', 'maxProperties': %d, 'propertyNames': {'pattern': '^(0|[1-9][0-9]{0,%d})$'}, "
                       "'additionalProperties': {'type': 'number', 'minimum': -100, 'maximum': 100}}, ", API_MAX_BIASES, n_digits - 1);
}

/* ---- routes ---- */

static void add_success(struct buffer *out, size_t i)
{
    buffer_add_text(out, "'200': {'description': 'OK', 'content': {");
    if (routes[i].gives)
        buffer_printf(out, "'application/json': {'schema': {'$ref': '#/components/schemas/%s'}}", routes[i].gives);
    else
        buffer_add_text(out, "'text/plain': {'schema': {'type': 'string'}}");
    if (routes[i].streams)
        buffer_add_text(out, ", 'text/event-stream': {}");
    buffer_add_text(out, "}}");
}

static void add_route(struct buffer *out, size_t i)
{
    buffer_printf(out, "'%s': {'%s': {'summary': '%s', ", routes[i].path, routes[i].method, routes[i].summary);
    buffer_add_text(out, routes[i].is_open ? "'security': [], " : "'security': [{}, {'key': []}], ");
    if (strchr(routes[i].path, '{'))
        buffer_add_text(out, "'parameters': [{'name': 'id', 'in': 'path', 'required': true, 'schema': " REF("ModelName") "}], ");
    if (routes[i].takes)
        buffer_printf(out, "'requestBody': {'required': true, 'content': {'application/json': {"
                           "'schema': {'$ref': '#/components/schemas/%s'}}}}, ",
                      routes[i].takes);
    buffer_add_text(out, "'responses': {");
    add_success(out, i);
    for (size_t k = 0; k < COUNT_OF(errors); k++)
        if ((routes[i].takes || !errors[k].of_bodies) && (routes[i].may_be_busy || !errors[k].of_busy))
            buffer_printf(out, ", '%d': {'$ref': '#/components/responses/E%d'}", errors[k].status, errors[k].status);
    if (routes[i].is_state)
        buffer_add_text(out, ", '503': {'description': 'It would not', 'content': {'application/json': {'schema': " REF("State") "}}}");
    buffer_add_text(out, "}}}");
}

void api_openapi(struct buffer *out, const struct api_model *model)
{
    size_t before = out->size;
    buffer_add_text(out, "{'openapi': '3.1.0', 'info': {'title': 'Stoa', 'version': '" STOA_VERSION "'}, 'paths': {");
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        buffer_add_text(out, i ? ", " : "");
        add_route(out, i);
    }
    buffer_add_text(out, "}, 'components': {'securitySchemes': {'key': {'type': 'http', 'scheme': 'bearer'}}, 'responses': {");
    for (size_t i = 0; i < COUNT_OF(errors); i++)
        buffer_printf(out, "%s'E%d': {'description': '%s', 'content': {'application/json': {'schema': " REF("Error") "}}}",
                      i ? ", " : "", errors[i].status, errors[i].text);
    buffer_add_text(out, "}, 'schemas': {");
    add_bodies(out);
    add_ids(out, model);
    buffer_add_text(out, schemas);
    buffer_add_text(out, "}}}");
    for (size_t i = before; i < out->size; i++)
        if (out->bytes[i] == '\'')
            out->bytes[i] = '"';
}

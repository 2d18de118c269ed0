#include "front/api_fields.h"

#include "base/base.h"
#include "text/unicode.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Which routes know a field. */
#define CHAT (1u << API_CHAT)
#define COMPLETION (1u << API_COMPLETION)
#define TOKENIZE (1u << API_TOKENIZE)
#define DETOKENIZE (1u << API_DETOKENIZE)
#define BOTH (CHAT | COMPLETION)
#define TEMPLATED (CHAT | TOKENIZE)
#define ALL (BOTH | TOKENIZE | DETOKENIZE)

#define AT(field) offsetof(struct api_fields, field)
#define MOST_TOKENS 2147483647.0
#define ANY_SEED 0x1p63                         /* int64_t; a double lacks its last digits, so the description has words for it */

#define FIRST_OF_ENUM(name) "'" name "'"
#define NEXT_OF_ENUM(name) ", '" name "'"
#define STOP "'type': 'string', 'minLength': 1, 'maxLength': " API_DIGITS(API_MAX_STOP)
#define IDS "'type': 'array', 'items': {'$ref': '#/components/schemas/TokenId'}"

#define PUT(Name, Kinds, Type, field) .name = Name, .kinds = Kinds, .type = Type, .at = AT(field)
#define BOOL(name, kinds, field) { PUT(name, kinds, FIELD_BOOL, field) }
#define INTEGER(name, kinds, field, least, most) { PUT(name, kinds, FIELD_INTEGER, field), .low = least, .high = most }
#define NUMBER(name, kinds, field, least, most) { PUT(name, kinds, FIELD_NUMBER, field), .low = least, .high = most }
#define TEXT(name, kinds, field, least, most) { PUT(name, kinds, FIELD_TEXT, field), .low = least, .high = most }
#define LIST(name, kinds, field, Schema) { PUT(name, kinds, FIELD_LIST, field), .schema = Schema }
#define OBJECT(name, kinds, field, Schema) { PUT(name, kinds, FIELD_OBJECT, field), .schema = Schema }
#define ANY(name, kinds, field, Schema) { PUT(name, kinds, FIELD_ANY, field), .schema = Schema }
#define IGNORED(Name, Kinds) { .name = Name, .kinds = Kinds, .type = FIELD_IGNORED }
#define OFF(Name, Kinds, number, text) { .name = Name, .kinds = Kinds, .type = FIELD_OFF, .low = number, .off = text }
#define NEVER(Name, Kinds) { .name = Name, .kinds = Kinds, .type = FIELD_NEVER }

/* In the order of OpenAI's reference; then what vLLM adds, then llama-server.  A name that stands here twice means something else on
 * each route. */
const struct api_field api_fields[] = {
    { PUT("model", ALL, FIELD_TEXT, model), .low = 1, .high = API_MAX_NAME, .schema = "'$ref': '#/components/schemas/ModelName'" },
    LIST("messages", TEMPLATED, messages, "'$ref': '#/components/schemas/Messages'"),
    ANY("prompt", COMPLETION, prompt, "'$ref': '#/components/schemas/Prompt'"),
    TEXT("prompt", TOKENIZE, prompt, 0, API_MAX_TOKENIZED),
    NUMBER("frequency_penalty", BOTH, frequency_penalty, -2, 2),
    NUMBER("presence_penalty", BOTH, presence_penalty, -2, 2),
    OBJECT("logit_bias", BOTH, logit_bias, "'$ref': '#/components/schemas/LogitBias'"),
    BOOL("logprobs", CHAT, logprobs),
    INTEGER("logprobs", COMPLETION, n_logprobs, 0, API_MAX_LOGPROBS),
    INTEGER("top_logprobs", CHAT, top_logprobs, 0, API_MAX_LOGPROBS),
    INTEGER("max_completion_tokens", BOTH, max_completion_tokens, 1, MOST_TOKENS),
    INTEGER("max_tokens", CHAT, max_tokens, 1, MOST_TOKENS),
    INTEGER("max_tokens", COMPLETION, max_tokens, 0, MOST_TOKENS),
    INTEGER("n", BOTH, n, 1, API_MAX_CHOICES),
    INTEGER("best_of", COMPLETION, best_of, 1, API_MAX_CHOICES),
    BOOL("echo", COMPLETION, echo),
    OFF("suffix", COMPLETION, 0, ""),
    { PUT("seed", BOTH, FIELD_INTEGER, seed), .low = -ANY_SEED, .high = ANY_SEED,
      .schema = "'type': 'integer', 'minimum': -9223372036854775808, 'maximum': 9223372036854775807" },
    ANY("stop", BOTH, stop, "'oneOf': [{" STOP "}, {'type': 'array', 'maxItems': " API_DIGITS(API_MAX_STOPS) ", 'items': {" STOP "}}]"),
    BOOL("stream", BOTH, stream),
    OBJECT("stream_options", BOTH, stream_options, "'type': 'object', 'properties': {'include_usage': {'type': ['boolean', 'null']}}"),
    NUMBER("temperature", BOTH, temperature, 0, 2),
    NUMBER("top_p", BOTH, top_p, 1e-6, 1),
    TEXT("reasoning_effort", TEMPLATED, reasoning_effort, 0, 32),
    OFF("tools", TEMPLATED, 0, NULL),
    OFF("tool_choice", CHAT, 0, "none"),
    OFF("functions", CHAT, 0, NULL),
    OFF("function_call", CHAT, 0, "none"),
    OFF("response_format", BOTH, 0, "text"),
    OFF("modalities", CHAT, 0, "text"),
    OFF("audio", CHAT, 0, NULL),
    OFF("verbosity", CHAT, 0, "medium"),
    NEVER("web_search_options", CHAT),
    OFF("moderation", BOTH, 0, NULL),
    IGNORED("metadata", BOTH),
    IGNORED("parallel_tool_calls", CHAT),
    IGNORED("prediction", CHAT),
    IGNORED("prompt_cache_key", BOTH),
    IGNORED("prompt_cache_options", BOTH),
    IGNORED("prompt_cache_retention", BOTH),
    IGNORED("safety_identifier", BOTH),
    IGNORED("service_tier", BOTH),
    IGNORED("store", BOTH),
    IGNORED("user", BOTH),

    INTEGER("top_k", BOTH, top_k, -1, MOST_TOKENS),
    NUMBER("min_p", BOTH, min_p, 0, 1),
    NUMBER("repetition_penalty", BOTH, repetition_penalty, 0.01, 2),
    INTEGER("min_tokens", BOTH, min_tokens, 0, MOST_TOKENS),
    LIST("stop_token_ids", BOTH, stop_token_ids, IDS ", 'maxItems': " API_DIGITS(API_MAX_STOP_IDS)),
    BOOL("include_stop_str_in_output", BOTH, include_stop),
    BOOL("ignore_eos", BOTH, ignore_eos),
    BOOL("skip_special_tokens", BOTH, skip_special),
    BOOL("add_special_tokens", ALL & ~DETOKENIZE, add_special),
    BOOL("add_generation_prompt", TEMPLATED, add_generation_prompt),
    BOOL("continue_final_message", TEMPLATED, continue_final),
    OBJECT("chat_template_kwargs", TEMPLATED, variables, "'type': 'object', 'maxProperties': " API_DIGITS(API_MAX_VARIABLES)
           ", 'propertyNames': {'not': {'enum': [" API_OWN_VARIABLES(FIRST_OF_ENUM, NEXT_OF_ENUM) "]}}"),
    LIST("documents", TEMPLATED, documents, "'type': 'array', 'items': {'type': 'object'}"),
    BOOL("return_token_ids", BOTH, return_token_ids),
    INTEGER("priority", BOTH, priority, -2147483648.0, 2147483647.0),
    TEXT("cache_salt", BOTH, cache_salt, 1, API_MAX_NAME),
    LIST("tokens", DETOKENIZE, tokens, IDS),
    BOOL("return_token_strs", TOKENIZE, return_token_strs),
    NEVER("chat_template", TEMPLATED),
    NEVER("truncate_prompt_tokens", BOTH),
    NEVER("prompt_logprobs", BOTH),
    NEVER("prompt_embeds", COMPLETION),
    NEVER("thinking_token_budget", BOTH),
    OFF("echo", CHAT, 0, NULL),
    OFF("allowed_token_ids", BOTH, 0, NULL),
    OFF("bad_words", BOTH, 0, NULL),
    OFF("use_beam_search", BOTH, 0, NULL),
    OFF("length_penalty", BOTH, 1, NULL),
    OFF("guided_json", BOTH, 0, NULL),
    OFF("guided_regex", BOTH, 0, NULL),
    OFF("guided_choice", BOTH, 0, NULL),
    OFF("guided_grammar", BOTH, 0, NULL),
    OFF("structural_tag", BOTH, 0, NULL),
    OFF("structured_outputs", BOTH, 0, NULL),
    OFF("logits_processors", BOTH, 0, NULL),
    OFF("logprob_token_ids", BOTH, 0, NULL),
    OFF("repetition_detection", BOTH, 0, NULL),
    OFF("watermarking", BOTH, 0, NULL),
    OFF("vllm_xargs", BOTH, 0, NULL),
    OFF("mm_processor_kwargs", TEMPLATED, 0, NULL),
    OFF("media_io_kwargs", TEMPLATED, 0, NULL),
    OFF("mm_payload", BOTH, 0, NULL),
    OFF("return_mm_kwargs", BOTH, 0, NULL),
    OFF("return_prompt_text", CHAT, 0, NULL),
    OFF("return_token_offsets", BOTH, 0, NULL),
    OFF("return_tokens_as_token_ids", BOTH, 0, NULL),
    OFF("kv_transfer_params", BOTH, 0, NULL),
    OFF("ec_transfer_params", BOTH, 0, NULL),
    IGNORED("spaces_between_special_tokens", BOTH),
    IGNORED("early_stopping", BOTH),
    IGNORED("include_reasoning", CHAT),
    IGNORED("guided_decoding_backend", BOTH),
    IGNORED("guided_whitespace_pattern", BOTH),
    IGNORED("request_id", BOTH),
    IGNORED("session_id", BOTH),
    IGNORED("stream_interval", BOTH),
    IGNORED("truncation_side", BOTH),
    IGNORED("routed_experts_prompt_start", BOTH),

    TEXT("content", TOKENIZE, content, 0, API_MAX_TOKENIZED),
    BOOL("add_special", TOKENIZE, add_special),
    BOOL("parse_special", TOKENIZE, parse_special),
    BOOL("with_pieces", TOKENIZE, with_pieces),
    INTEGER("n_predict", BOTH, n_predict, -1, MOST_TOKENS),
    NUMBER("repeat_penalty", BOTH, repeat_penalty, 0.01, 2),
    OFF("repeat_last_n", BOTH, -1, NULL),
    OFF("typical_p", BOTH, 1, NULL),
    OFF("top_n_sigma", BOTH, -1, NULL),
    OFF("dynatemp_range", BOTH, 0, NULL),
    OFF("dry_multiplier", BOTH, 0, NULL),
    OFF("xtc_probability", BOTH, 0, NULL),
    OFF("mirostat", BOTH, 0, NULL),
    OFF("adaptive_target", BOTH, -1, NULL),
    OFF("min_keep", BOTH, 0, NULL),
    OFF("n_probs", BOTH, 0, NULL),
    OFF("n_cmpl", BOTH, 1, NULL),
    OFF("n_indent", BOTH, 0, NULL),
    OFF("grammar", BOTH, 0, NULL),
    OFF("json_schema", BOTH, 0, NULL),
    NEVER("samplers", BOTH),
    OFF("t_max_predict_ms", BOTH, 0, NULL),
    OFF("t_max_prompt_ms", BOTH, 0, NULL),
    OFF("reasoning_budget_tokens", BOTH, -1, NULL),
    OFF("reasoning_control", CHAT, 0, NULL),
    OFF("generation_prompt", CHAT, 0, NULL),
    OFF("response_fields", BOTH, 0, NULL),
    OFF("post_sampling_probs", BOTH, 0, NULL),
    OFF("return_tokens", BOTH, 0, NULL),
    OFF("lora", BOTH, 0, NULL),
    IGNORED("dynatemp_exponent", BOTH),
    IGNORED("dry_base", BOTH),
    IGNORED("dry_allowed_length", BOTH),
    IGNORED("dry_penalty_last_n", BOTH),
    IGNORED("dry_sequence_breakers", BOTH),
    IGNORED("xtc_threshold", BOTH),
    IGNORED("mirostat_tau", BOTH),
    IGNORED("mirostat_eta", BOTH),
    IGNORED("adaptive_decay", BOTH),
    IGNORED("backend_sampling", BOTH),
    IGNORED("n_cache_reuse", BOTH),
    IGNORED("n_discard", BOTH),
    IGNORED("return_progress", BOTH),
    IGNORED("sse_ping_interval", BOTH),
    IGNORED("verbose", BOTH),
    IGNORED("cache_prompt", BOTH),
    IGNORED("id_slot", BOTH),
    IGNORED("n_keep", BOTH),
    IGNORED("timings_per_token", BOTH),
    IGNORED("reasoning_format", CHAT),
    IGNORED("parse_tool_calls", CHAT),
};
const size_t api_n_fields = COUNT_OF(api_fields);

static const struct api_fields usual = {
    .max_tokens = API_NOT_GIVEN, .max_completion_tokens = API_NOT_GIVEN, .n_predict = API_NOT_GIVEN, .best_of = API_NOT_GIVEN,
    .top_logprobs = API_NOT_GIVEN, .n_logprobs = API_NOT_GIVEN, .n = 1, .temperature = 1, .top_p = 1, .repetition_penalty = 1,
    .repeat_penalty = 1, .skip_special = true, .add_special = true, .parse_special = true, .add_generation_prompt = true,
};

int api_refuse(struct api_error *error, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *error = (struct api_error){ .status = 400, .type = api_error_type(400) };
    snprintf(error->param, sizeof error->param, "%s", param ? param : "");
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return -1;
}

bool api_integer(const struct template_value *value, int64_t *integer)
{
    if (value->kind == VALUE_INT) {
        *integer = value->number;
        return true;
    }
    if (value->kind != VALUE_FLOAT || !(fabs(value->real) <= 9007199254740992.0) || value->real != floor(value->real))
        return false;
    *integer = (int64_t)value->real;
    return true;
}

bool api_field_is_off(const struct api_field *field, const struct template_value *value)
{
    const struct template_value *type;
    switch (value->kind) {
    case VALUE_NONE:   return true;
    case VALUE_BOOL:   return !value->flag;
    case VALUE_INT:
    case VALUE_FLOAT:  return template_as_float(value) == field->low;
    case VALUE_STRING: return value->text.n_bytes == 0 || (field->off && template_text_equal(value, field->off));
    case VALUE_LIST:
        for (size_t i = 0; i < value->list->n; i++)
            if (value->list->items[i].kind != VALUE_STRING || !api_field_is_off(field, &value->list->items[i]))
                return false;
        return true;
    case VALUE_MAP:
        type = template_map_find(value->map, "type", 4);
        return !value->map->n || (type && field->off && type->kind == VALUE_STRING && template_text_equal(type, field->off));
    default:           return false;
    }
}

static int put_number(void *at, const struct api_field *f, const struct template_value *value, struct api_error *error)
{
    int64_t integer = 0;
    double number = 0;
    if (f->type == FIELD_INTEGER) {
        if (!api_integer(value, &integer))
            return api_refuse(error, f->name, "%s must be an integer", f->name);
        number = (double)integer;
        *(int64_t *)at = integer;
    } else {
        if (value->kind != VALUE_FLOAT && value->kind != VALUE_INT)
            return api_refuse(error, f->name, "%s must be a number", f->name);
        *(double *)at = number = template_as_float(value);
    }
    if (!(number >= f->low && number <= f->high))
        return api_refuse(error, f->name, "%s must be between %.10g and %.10g", f->name, f->low, f->high);
    return 0;
}

static int put_value(void *at, const struct api_field *f, const struct template_value *value, struct api_error *error)
{
    static const struct { enum template_kind kind; const char *name; } wanted[] = {
        [FIELD_TEXT] = { VALUE_STRING, "a string" }, [FIELD_LIST] = { VALUE_LIST, "an array" }, [FIELD_OBJECT] = { VALUE_MAP, "an object" },
    };
    if (f->type != FIELD_ANY && value->kind != wanted[f->type].kind)
        return api_refuse(error, f->name, "%s must be %s", f->name, wanted[f->type].name);
    double n_characters = f->type == FIELD_TEXT ? (double)utf8_count(value->text.bytes, value->text.n_bytes) : 0;
    if (f->type == FIELD_TEXT && (n_characters > f->high || n_characters < f->low))
        return api_refuse(error, f->name, "%s must have %.0f to %.0f characters", f->name, f->low, f->high);
    *(const struct template_value **)at = value;
    return 0;
}

static int put_field(struct api_fields *fields, const struct api_field *f, const struct template_value *value, struct api_error *error)
{
    void *at = (char *)fields + f->at;
    switch (f->type) {
    case FIELD_BOOL:
        if (value->kind != VALUE_BOOL)
            return api_refuse(error, f->name, "%s must be true or false", f->name);
        *(bool *)at = value->flag;
        return 0;
    case FIELD_INTEGER:
    case FIELD_NUMBER: return put_number(at, f, value, error);
    case FIELD_TEXT:
    case FIELD_LIST:
    case FIELD_OBJECT:
    case FIELD_ANY:    return put_value(at, f, value, error);
    case FIELD_IGNORED: break;
    case FIELD_OFF:
        if (api_field_is_off(f, value))
            return 0;
        break;
    case FIELD_NEVER:  break;
    }
    return api_refuse(error, f->name, "%s is not supported%s", f->name, f->type == FIELD_OFF ? " with this value" : "");
}

static const struct api_field *find_field(enum api_kind kind, const struct template_value *name)
{
    for (size_t i = 0; i < api_n_fields; i++)
        if (api_fields[i].kinds & 1u << kind && template_text_equal(name, api_fields[i].name))
            return &api_fields[i];
    return NULL;
}

/* A body has a name many times, as each of its messages may: it takes one place.  Those for which there is none are not told of. */
int api_fields_note(struct api_fields *fields, bool strict, const char *where, const struct template_value *name, struct api_error *error)
{
    char param[sizeof error->param];
    snprintf(param, sizeof param, "%s%.*s", where, (int)MIN(name->text.n_bytes, sizeof param - 1), name->text.bytes);
    if (strict)
        return api_refuse(error, param, "%s changes nothing here", param);
    for (uint32_t i = 0; i < fields->n_odd; i++)
        if (fields->odd[i].where == where && fields->odd[i].n_bytes == name->text.n_bytes &&
            !memcmp(fields->odd[i].name, name->text.bytes, name->text.n_bytes))
            return 0;
    if (fields->n_odd < API_MAX_ODD)
        fields->odd[fields->n_odd++] = (struct api_odd){ where, name->text.bytes, name->text.n_bytes };
    return 0;
}

void api_fields_tell(const struct api_fields *fields, struct buffer *out)
{
    for (uint32_t i = 0; i < fields->n_odd; i++) {
        buffer_add_text(out, fields->odd[i].where);
        buffer_add(out, fields->odd[i].name, MIN(fields->odd[i].n_bytes, (size_t)64));
        buffer_add(out, "", 1);
    }
}

static int read_stream_options(struct api_fields *fields, bool strict, struct api_error *error)
{
    int err = 0;
    const struct template_map *options = fields->stream_options->map;
    const struct template_value *usage = template_map_find(options, "include_usage", 13);
    const struct template_value *continuous = template_map_find(options, "continuous_usage_stats", 22);
    if (usage && usage->kind != VALUE_BOOL && usage->kind != VALUE_NONE)
        return api_refuse(error, "stream_options.include_usage", "stream_options.include_usage must be true or false");
    if (continuous && template_value_is_true(continuous))
        return api_refuse(error, "stream_options.continuous_usage_stats", "stream_options.continuous_usage_stats is not supported");
    fields->include_usage = usage && usage->kind == VALUE_BOOL && usage->flag;
    for (size_t i = 0; i < options->n && !err; i++)
        if (&options->entries[i].value != usage && &options->entries[i].value != continuous && options->entries[i].value.kind != VALUE_NONE)
            err = api_fields_note(fields, strict, "stream_options.", &options->entries[i].key, error);
    return err;
}

int api_fields_read(struct api_fields *fields, enum api_kind kind, bool strict, const struct template_value *body, struct api_error *error)
{
    int err = 0;
    *fields = usual;
    if (body->kind != VALUE_MAP)
        return api_refuse(error, NULL, "the body must be a JSON object");
    for (size_t i = 0; i < body->map->n && !err; i++) {
        const struct template_entry *entry = &body->map->entries[i];
        const struct api_field *field = find_field(kind, &entry->key);
        if (entry->value.kind == VALUE_NONE)        /* is absent */
            continue;
        if (!field || field->type == FIELD_IGNORED) {
            err = api_fields_note(fields, strict, "", &entry->key, error);
        } else {
            err = put_field(fields, field, &entry->value, error);
            fields->has_seed |= field->at == AT(seed) && field->type == FIELD_INTEGER;
            fields->has_add_generation_prompt |= field->at == AT(add_generation_prompt) && field->type == FIELD_BOOL;
        }
    }
    return !err && fields->stream_options ? read_stream_options(fields, strict, error) : err;
}

/* http_text.c: fixed words of HTTP. */
#include "base/base.h"
#include "front/http_impl.h"

#include <time.h>

const char *http_reason(int status)
{
    static const struct { int status; const char *text; } reasons[] = {
        { 200, "OK" },                      { 204, "No Content" },              { 400, "Bad Request" },
        { 401, "Unauthorized" },            { 403, "Forbidden" },               { 404, "Not Found" },
        { 405, "Method Not Allowed" },      { 408, "Request Timeout" },         { 413, "Content Too Large" },
        { 414, "URI Too Long" },            { 415, "Unsupported Media Type" },  { 417, "Expectation Failed" },
        { 422, "Unprocessable Content" },   { 429, "Too Many Requests" },       { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },   { 501, "Not Implemented" },         { 502, "Bad Gateway" },
        { 503, "Service Unavailable" },     { 504, "Gateway Timeout" },         { 505, "HTTP Version Not Supported" },
    };
    for (size_t i = 0; i < COUNT_OF(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Other";
}

/* Not strftime(): a locale would translate the names. */
void http_add_date(struct buffer *out)
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm t;
    time_t now = time(NULL);
    gmtime_r(&now, &t);
    buffer_printf(out, "Date: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n", days + 3 * t.tm_wday, t.tm_mday, months + 3 * t.tm_mon,
                  t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

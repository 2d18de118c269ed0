#include "base/dtype.h"
#include "base/quant.h"
#include "tests/check.h"
#include "tests/text/golden.h"

#include <math.h>
#include <string.h>

/* Every f16 survives the way to f32 and back; values between two f16 go to the even one. */
static void test_f16(void)
{
    check_begin("f16: all 65536 values, and ties");
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float value = f16_to_f32((uint16_t)bits);
        if (isnan(value))
            check(isnan(f16_to_f32(f32_to_f16(value))));
        else
            check_int(f32_to_f16(value), bits);
    }
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float tie = (f16_to_f32((uint16_t)bits) + f16_to_f32((uint16_t)(bits + 1))) / 2;
        check_int(f32_to_f16(tie), bits + (bits & 1));
        check_int(f32_to_f16(nextafterf(tie, 1e9f)), bits + 1);
    }
    check_int(f32_to_f16(65519.0f), 0x7bff);
    check_int(f32_to_f16(65520.0f), 0x7c00);
    check_int(f32_to_f16(-1e30f), 0xfc00);
}

static void test_bf16(void)
{
    check_begin("bf16: ties go to even, NaN stays NaN");
    check_int(f32_to_bf16(1.0f), 0x3f80);
    check_int(f32_to_bf16(1.00390625f), 0x3f80);
    check_int(f32_to_bf16(1.01171875f), 0x3f82);
    check(isnan(bf16_to_f32(f32_to_bf16(NAN))));
}

static void test_blocks(void)
{
    uint8_t q4[20] = { 0x00, 0x3c, 0x00, 0xc0 };        /* d = 1, m = -2 */
    float got[32];
    check_begin("q4_1: low nibbles are elements 0 to 15, high ones 16 to 31");
    for (int i = 0; i < 16; i++)
        q4[4 + i] = (uint8_t)(i | (15 - i) << 4);
    dequantize_row(got, q4, DTYPE_Q4_1, 32);
    for (int i = 0; i < 16; i++) {
        check(got[i] == (float)i - 2);
        check(got[16 + i] == (float)(15 - i) - 2);
    }
}

static size_t from_hex(uint8_t *to, const char *hex)
{
    size_t n = 0;
    for (unsigned byte; sscanf(hex + 2 * n, "%2x", &byte) == 1; n++)
        to[n] = (uint8_t)byte;
    return n;
}

/* Every type in blocks stands for what the gguf package says, bit for bit. */
static void test_goldens(void)
{
    json_t *golden = golden_load("dtype.json");
    for (enum dtype type = 0; type < N_DTYPES; type++) {
        static uint8_t blocks[4096], want[4096];
        static float got[1024];
        const json_t *row = json_object_get(golden, dtype_info[type].name);
        if (dtype_info[type].block == 1 || !dtype_info[type].weight)
            continue;
        check_begin("%s as gguf dequantizes it", dtype_info[type].name);
        check(row != NULL);
        size_t n_blocks = from_hex(blocks, json_string_value(json_array_get(row, 0))) / dtype_info[type].bytes;
        size_t n_bytes = from_hex(want, json_string_value(json_array_get(row, 1)));
        check_int(n_bytes, n_blocks * dtype_info[type].block * sizeof(float));
        dequantize_row(got, blocks, type, n_blocks * dtype_info[type].block);
        check_bytes("weights", got, want, n_bytes);
    }
    json_decref(golden);
}

/* Every byte of a block belongs to one of its parts. */
static void test_pack(void)
{
    for (enum dtype type = 0; type < N_DTYPES; type++) {
        if (!quant_info[type].bits)
            continue;
        check_begin("%s: blocks taken apart and put together", dtype_info[type].name);
        uint32_t state = 1;
        for (int round = 0; round < 100; round++) {
            uint8_t bytes[256], again[256];
            struct quant_block block;
            for (uint32_t i = 0; i < sizeof bytes; i++)
                bytes[i] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
            quant_unpack(&block, bytes, type);
            quant_pack(again, &block, type);
            check_bytes("block", again, bytes, dtype_info[type].bytes);
        }
    }
}

int main(void)
{
    test_f16();
    test_bf16();
    test_blocks();
    test_goldens();
    test_pack();
    return check_done();
}

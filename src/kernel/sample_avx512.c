#define SET(name) name##_avx512
#include "kernel/sample_body.h"

#define SET(name) name##_avx2
#include "kernel/sample_body.h"

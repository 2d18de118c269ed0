#define MASSES masses_avx2
#include "kernel/mass_body.h"

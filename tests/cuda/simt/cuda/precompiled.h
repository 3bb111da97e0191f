// What the Makefile compiles once for all files of the look-alike of libcuda.
#include "driver.h"

// Numbers of groups, negative for none, in CODE_BYTES bytes, which are defined before this text.

#if CODE_BYTES == 1
typedef signed char Code;
#elif CODE_BYTES == 2
typedef short Code;
#else
typedef int Code;
#endif

// Box plots of many lanes as columns.

#include "lanes.cuh"
#include "lane_sums.cuh"

// A column for each statistic; the columns of quantiles follow one another.
struct Columns {
    double *q, *mean, *deviation;
    Word *least, *most, *low, *high;
    u32 *n_valid, *n_low, *n_high;
    unsigned char* is_unsure;  // flags of unsure means and deviations
};

// Flags and counts for all lanes together.
struct Told {
    Flags flags;
    u64 n_fliers, n_unsure;
};

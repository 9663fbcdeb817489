// Box plots of many lanes as columns.

// A column for each statistic; those of quantiles one behind the other.
struct Columns {
    double *q, *mean, *deviation;
    Word *least, *most, *low, *high;
    u32 *n_valid, *n_low, *n_high;
    unsigned char* is_unsure;  // of the mean and the deviation
};

// Of all lanes together.
struct Told {
    Flags flags;
    u64 n_fliers, n_unsure;
};

"""Types of the parameters of kernels, by which they are compiled: see `compiling.kernel`.

`int`, `float` and `bool` are numbers of 64 bits and flags. Arrays are contiguous, and those that
are only read say so: such a parameter takes both kinds. Arrays whose names begin with `Strided`
need not be contiguous.
"""

from __future__ import annotations

from typing import Annotated, Any

from dask_gpuselect.kernels.compiling import Parameter

# Elements, or words as wide as these
Value = Annotated[Any, Parameter(ndim=0)]
Values = Annotated[Any, Parameter(is_read=True)]
Out = Annotated[Any, Parameter()]
Rows = Annotated[Any, Parameter(ndim=2, is_read=True)]
StridedRows = Annotated[Any, Parameter(ndim=2, layout="A")]
Table = Annotated[Any, Parameter(ndim=2)]
Stack = Annotated[Any, Parameter(ndim=3)]
WordTable = Annotated[Any, Parameter("uint", 2, least=32)]
BitTable = Annotated[Any, Parameter("int", 2)]
Bits = Annotated[Any, Parameter("int", is_read=True)]

# Numbers
Word = Annotated[Any, Parameter("uint64", 0)]
LongWords = Annotated[Any, Parameter("uint64")]
Cells = Annotated[Any, Parameter("uint32")]
Codes = Annotated[Any, Parameter("int32", is_read=True)]
CodesOut = Annotated[Any, Parameter("int32")]
CodeTable = Annotated[Any, Parameter("int32", 2)]
Marks = Annotated[Any, Parameter("uint8", is_read=True)]
MarksOut = Annotated[Any, Parameter("uint8")]
Levels = Annotated[Any, Parameter("int8", 2)]
Places = Annotated[Any, Parameter("int64", is_read=True)]
Ints = Annotated[Any, Parameter("int64")]
StridedInts = Annotated[Any, Parameter("int64", layout="A", is_read=True)]
IntRows = Annotated[Any, Parameter("int64", 2, is_read=True)]
IntTable = Annotated[Any, Parameter("int64", 2)]
StridedIntRows = Annotated[Any, Parameter("int64", 2, layout="A", is_read=True)]
IntStack = Annotated[Any, Parameter("int64", 3)]
Reals = Annotated[Any, Parameter("float64", is_read=True)]
Floats = Annotated[Any, Parameter("float64")]
StridedReals = Annotated[Any, Parameter("float64", layout="A", is_read=True)]
RealRows = Annotated[Any, Parameter("float64", 2, is_read=True)]
StridedRealRows = Annotated[Any, Parameter("float64", 2, layout="A")]
FloatTable = Annotated[Any, Parameter("float64", 2)]
FloatStack = Annotated[Any, Parameter("float64", 3)]
FloatStacks = Annotated[Any, Parameter("float64", 4)]
Flags = Annotated[Any, Parameter("boolean", is_read=True)]
FlagsOut = Annotated[Any, Parameter("boolean")]
StridedFlags = Annotated[Any, Parameter("boolean", layout="A", is_read=True)]
FlagTable = Annotated[Any, Parameter("boolean", 2)]

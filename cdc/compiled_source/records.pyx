# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Rows to Kafka records, compiled: what cdc.envelope, cdc.rowcode, cdc.values, cdc.rows and snapshot.copy_text do
in Python, for the cases that are almost all of them.

In: frames of whole transactions, or COPY's lines. Out: the same records as Python's, byte for byte. Keeps true: what is
not plain (a fault, a missing value, a message that is not a row's) is left alone, so that Python decides and explains.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from cdc.changes import Record
from cdc.frames import POSTGRES_EPOCH_US

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* type, Py_ssize_t items)
    void PyTuple_SET_ITEM(object p, Py_ssize_t at, object item)
    PyObject* PyTuple_GET_ITEM(object p, Py_ssize_t at)

cdef extern from *:
    """
    #ifndef AFTERIMAGE_SOURCE
    #define AFTERIMAGE_SOURCE "source:unknown"
    #endif
    """
    const char* AFTERIMAGE_SOURCE

SOURCE = AFTERIMAGE_SOURCE.decode()  # says which source this was built from

cdef int64_t _EPOCH_US = POSTGRES_EPOCH_US
cdef object _Record = Record
cdef tuple _UNFIT = (TypeError, ValueError, AttributeError)

# How a column's text becomes JSON; cdc.values says what each means.
cpdef enum Kind:
    PASSED = 0
    BOOLEAN = 1
    FLOAT = 2
    BINARY = 3
    TIMESTAMP = 4
    TIMESTAMPTZ = 5
    INTEGERS = 6
    TEXT = 7
    CALLED = 8

cdef enum:
    NULL_VALUE = -1
    OK = 0
    LEAVE = 1
    HEADER = 25
    COLUMNS_MAX = 1664
    LINE_HEADROOM = 8

include "crc32.pxi"
include "buffer.pxi"
include "values.pxi"
include "tables.pxi"
include "log.pxi"
include "copy.pxi"
include "sending.pxi"

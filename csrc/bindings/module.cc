// The compiled module `evenstride._core`.
#include "bindings/module.h"

#include "core/threads.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "Planning in C++. Private: use the package `evenstride`.";
  m.attr("__version__") = EVENSTRIDE_VERSION;
#ifdef __VERSION__
  m.attr("compiler") = __VERSION__;
#endif
  m.def("available_processors", &evenstride::available_processors,
        "Return how many processors this process may run on.");
  evenstride::def_column(m);
  evenstride::def_collate(m);
  evenstride::def_delivery(m);
  evenstride::def_edges(m);
  evenstride::def_fingerprint(m);
  evenstride::def_given(m);
  evenstride::def_lists(m);
  evenstride::def_loader(m);
  evenstride::def_plan(m);
  evenstride::def_stats(m);
  evenstride::def_cuda(m);
}

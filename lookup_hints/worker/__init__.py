"""Functions over Arrow and pandas that Spark calls on its Python workers, and the files they write."""
